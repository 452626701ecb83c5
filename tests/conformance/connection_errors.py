"""Programs that call rdma_cm with wrong input, and a program that uses rdma_cm when rocid ends."""
import time

import lab
from lab import BUILD, Failure, Program

ERRORS = BUILD / 'tests/conformance/rdma_cm/cm_errors'


def missing():
    return None if ERRORS.exists() else 'cm_errors was not built (librdmacm-dev: ./dev setup)'


def bad_input(rocid):
    lab.run_once(rocid, [str(ERRORS), '--gtest_brief=1'], limit=60)


def goes_away():
    """When rocid ends, the program must get an event. Further calls must fail, and no call may hang."""
    with lab.Rocid() as rocid:
        program = Program(rocid, [str(ERRORS), '--gtest_brief=1', '--gtest_filter=*GoesAway*'], env={'CM_REMOVAL': '1'})
        try:
            end = time.monotonic() + 30
            while 'bound' not in program.output():
                if program.process.poll() is not None or time.monotonic() > end:
                    raise Failure(f'it did not come so far:\n{program.output()}')
                time.sleep(0.05)
            rocid.process.terminate()
            rocid.process.wait(20)
            if program.wait(20) != 0:
                raise Failure(program.output()[-1500:])
        finally:
            program.kill()


CASES = {'rdma_cm: bad input, row by row': bad_input}
ALONE = {'rdma_cm: rocid goes away': goes_away}
