"""Four devices that share a pool of frame buffers, while frames are lost. The engine keeps received frames behind the lost ones. If it
kept too many buffers, a device could not receive the missing frame any more."""
import concurrent.futures

import lab
from lab import REPO, Failure
from pairs import Pair, run_pair

CONFIG = REPO / 'tests/conformance/four_devices.toml'
PATHS = (('roci0', 'roci1'), ('roci2', 'roci3'))


def both_loopbacks_lose_frames(rocid, gids):
    gids = gids | {device: lab.gid_indexes(rocid, device) for device in PATHS[1]}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for command in (('ib_write_bw', '-q 16 -s 65536 -n 200'), ('ib_read_bw', '-q 16 -s 65536 -n 200 -o 8'), ('ib_send_bw', '-q 16 -s 65536 -n 200')):
            runs = [pool.submit(run_pair, rocid, Pair(*command, path=path, limit=120), gids, True) for path in PATHS]
            for run in runs:
                run.result()
    found = rocid.status()['host']['engines'][0]['counters']
    if found['reorder_kept'] < 1000:
        raise Failure(f'only {found["reorder_kept"]} frames were kept')
    if found['reorder_held'] != 0:
        raise Failure(f'{found["reorder_held"]} frames are still kept')


CASES = {'four devices share a pool of buffers and lose frames: all transfers end': both_loopbacks_lose_frames}
