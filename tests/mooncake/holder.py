"""A process that stores objects in a tier, and holds it open until its standard input ends.

python -m tests.mooncake.holder URL NUMBER ...
"""

from __future__ import annotations

import asyncio
import sys

from benchserver.refserver.tiers.url import open_tier
from tests.benchserver.refserver.tiers.conformance import content, key

NBYTES = 1 << 20


async def main() -> None:
    tier = open_tier(sys.argv[1])
    for number in map(int, sys.argv[2:]):
        await tier.write(key(number), content(number, NBYTES))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await tier.close()


if __name__ == "__main__":
    asyncio.run(main())
