"""python -m tests.soak: plays worlds until enough steps are made, in several processes, and sums up.

python -m tests.soak --steps 1000000 --seed 7         # a million steps
python -m tests.soak --seed 7 --world 12 --last 500   # one world again, with more of its steps if it fails
"""

import argparse
import sys
import time

from tests.soak.parallel import outcome, pool, worlds
from tests.soak.running import REMEMBERED, Played


def main() -> int:
    """Returns the exit status: 0 if every rule held."""
    given = _arguments()
    if given.world is not None:
        return _replay(given)
    began, steps, failures = time.monotonic(), 0, 0
    for result in worlds(given.seed, given.steps, given.processes):
        if isinstance(result, Played):
            steps += result.steps
            speed = steps / (time.monotonic() - began)
            print(f"world {result.number:4}: {result} {steps} steps in all, {speed:.0f}/s", flush=True)
            continue
        failures += 1
        print(f"\n{result}\n", flush=True)
        if failures == given.failures:
            break
    took = time.monotonic() - began
    print(f"seed {given.seed}: {steps} steps in {took:.0f} s, {steps / took:.0f}/s, {failures or 'no'} failures")
    return 1 if failures else 0


def _replay(given: argparse.Namespace) -> int:
    with pool(1) as executor:
        result = executor.submit(outcome, given.seed, given.world, given.last).result()
    print(result)
    return 0 if isinstance(result, Played) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides everything; default: the time")
    parser.add_argument("--steps", type=int, default=1_000_000, help="changes of the API's state, in all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--failures", type=int, default=1, help="end after so many")
    parser.add_argument("--world", type=int, help="play this one only")
    parser.add_argument("--last", type=int, default=REMEMBERED, help="how many steps to show if it fails")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
