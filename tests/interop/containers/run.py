#!/usr/bin/env python3
"""Tests RDMA between two podman containers that share only a network.

Each container has no capability, the default seccomp profile, and its own rocid (`roci up`). The cases of views.py run containers that
get devices from a sidecar container or from the machine.

    tests/interop/containers/run.py [--quick] [--only TEXT] [--list]

Prints PASS or FAIL per case. Ends with `N passed, N failed, N skipped`. Needs podman, crun and network namespaces (root).
"""
import argparse
import re
import sys

import pods
import hosts
import views

UCX = 'UCX_TLS=rc_verbs,ud_verbs UCX_NET_DEVICES=roci0:1 UCX_WARN_UNUSED_ENV_VARS=n'
PORT = 18700


def without_privilege(both):
    for pod in both.pods:
        said = pod.must('cat /proc/self/status; id')
        for wanted in (r'^CapEff:\s+0+$', r'^CapBnd:\s+0+$', r'^NoNewPrivs:\s+1$', r'^Seccomp:\s+2$', r'^uid=1000'):
            if not re.search(wanted, said, re.M):
                raise hosts.Failure(f'not {wanted}:\n{said}')


def up(both):
    for pod in both.pods:
        said = pod.must('roci up --interface wire0')
        if f'GID 1: {pod.address}' not in said:
            raise hosts.Failure(said)


def perftest(words):
    def body(both):
        command = f'roci run -- {words} -d roci0 -x 1 -F -p {PORT}'
        rows = [line.split() for line in both.pair(command, f'{command} {both.left.address}', PORT).splitlines() if re.match(r'^\s+\d+\s+\d+\s+[\d.]+', line)]
        if not rows:
            raise hosts.Failure('no result line')
        return ' '.join(rows[-1])
    return body


def rping(both):
    to = f'-a {both.left.address} -p {PORT + 1} -C 20 -S 4000 -V'
    both.pair(f'roci run -- rping -s {to}', f'roci run -- rping -c {to}', 0)


def ucx(test, size):
    def body(both):
        command = f'env {UCX} roci run -- ucx_perftest -p {PORT + 2}'
        said = both.pair(command, f'{command} {both.left.address} -t {test} -s {size} -n 500 -w 10', PORT + 2)
        found = re.search(r'^Final:\s+500\s.*$', said, re.M)
        if not found or re.search(r'\b(ERROR|WARN)\b', said):
            raise hosts.Failure(said[-1500:])
        return found[0]
    return body


def down(both):
    for pod in both.pods:
        if 'has ended' not in pod.must('roci down'):
            raise hosts.Failure(pod.said()[-500:])


CASES = [
    ('no capability, the default seccomp profile', without_privilege),
    ('roci up', up),
    *((f'perftest: {words}', perftest(words)) for words in ('ib_write_bw -s 65536 -n 500', 'ib_read_bw -s 65536 -n 500', 'ib_send_lat -s 64 -n 500')),
    ('rping', rping),
    *((f'UCX: {test} of {size} bytes', ucx(test, size)) for test, size in (('tag_lat', 8), ('tag_bw', 65536), ('ucp_put_bw', 65536), ('ucp_get', 65536))),
    ('roci down', down),
]


def run_cases(pair, chosen):
    """Returns the numbers of passed and of failed cases."""
    passed = failed = 0
    try:
        with pair as both:
            for name, body in chosen:
                try:
                    said = body(both)
                    passed += 1
                    print(f'PASS  {name}' + (f': {said}' if said else ''), flush=True)
                except hosts.Failure as failure:
                    failed += 1
                    print(f'FAIL  {name}\n    ' + str(failure).replace('\n', '\n    '), flush=True)
                    if body is up:
                        break
    except hosts.Failure as failure:  # the containers did not start
        failed += 1
        print(f'FAIL  {chosen[0][0]}\n    ' + str(failure).replace('\n', '\n    '), flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--only', default='', metavar='TEXT', help='run only cases whose name contains TEXT, and `roci up` before other cases of its form')
    size = parser.add_mutually_exclusive_group()
    size.add_argument('--quick', action='store_true', help='leave out the cases that move gigabytes, as CI does')
    size.add_argument('--full', action='store_true', help='run all cases (the default)')
    parser.add_argument('--list', action='store_true', help='print the names of the cases and stop')
    options = parser.parse_args()
    forms = [(form, [case for case in cases if options.only in case[0]]) for form, cases in [(pods.Pods, CASES), *views.FORMS] if not (options.quick and form is views.Strangers)]
    if forms[0][1] and CASES[1] not in forms[0][1]:
        forms[0][1].insert(0, CASES[1])
    forms = [(form, chosen) for form, chosen in forms if chosen]
    if options.list:
        print('\n'.join(name for _, chosen in forms for name, _ in chosen))
        return 0
    if why := pods.why_not():
        print(f'SKIP  containers: {why}\n0 passed, 0 failed, {sum(len(chosen) for _, chosen in forms)} skipped')
        return 0
    results = [run_cases(form(), chosen) for form, chosen in forms]
    passed, failed = (sum(numbers) for numbers in zip(*results))
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
