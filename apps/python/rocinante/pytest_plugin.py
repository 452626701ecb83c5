"""The fixture `rdma` of pytest: a rocid per test, with faults by seed.

    @pytest.mark.rdma(drop=0.01, seed=7)
    def test_my_program(rdma):
        assert rdma.run(['my_program', '--device', 'roci0']).returncode == 0

The arguments of the mark are those of rocinante.Rocid. A failed test shows them, and the log of rocid. The option --rdma-seed gives
tests without `seed` another seed.
"""
import pytest

from rocinante import Rocid


def pytest_addoption(parser):
    parser.addoption('--rdma-seed', type=int, metavar='N', help='seed of the faults of tests with the fixture rdma (1, or that of their configuration)')


def pytest_configure(config):
    config.addinivalue_line('markers', 'rdma(drop=0.01, seed=7, ...): arguments of rocinante.Rocid, for the fixture rdma')


@pytest.fixture
def rdma(request):
    mark = request.node.get_closest_marker('rdma')
    arguments = dict(mark.kwargs) if mark else {}
    seed = request.config.getoption('--rdma-seed')
    if seed is not None or 'config' not in arguments:
        arguments = {'seed': 1 if seed is None else seed} | arguments
    with Rocid(**arguments) as rocid:
        yield rocid


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report, rocid = outcome.get_result(), getattr(item, 'funcargs', {}).get('rdma')
    if report.when == 'call' and report.failed and isinstance(rocid, Rocid):
        report.sections.append(('rocid', f'{" ".join(rocid.command)}\n{rocid.log()}'))
