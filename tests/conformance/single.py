"""Cases without traffic: programs that query devices, `roci run`, and the files in /sys and /dev."""
import re

from lab import Failure, Program, run_once

DEVICES = ('roci0', 'roci1')


def need(text, pattern, what):
    match = re.search(pattern, text)
    if not match:
        raise Failure(f'{what} (wanted /{pattern}/):\n{text[-2500:]}')
    return match


def lists_devices(rocid):
    text = run_once(rocid, ['ibv_devices'])
    for device in DEVICES:
        need(text, rf'(?m)^\s*{device}\s+(?!0{{16}})[0-9a-f]{{16}}\s*$', f'{device} with a node GUID that is not zero')


# Attributes that `ibv_devinfo -v` prints, with the minimum values of a useful device.
AT_LEAST = {'max_qp': 100, 'max_qp_wr': 1024, 'max_sge': 4, 'max_cq': 100, 'max_cqe': 4096, 'max_mr': 100, 'max_pd': 10,
            'max_qp_rd_atom': 1, 'max_qp_init_rd_atom': 1, 'max_srq': 1, 'max_srq_wr': 100, 'max_ah': 10, 'phys_port_cnt': 1,
            'num_comp_vectors': 1, 'max_pkeys': 1, 'gid_tbl_len': 2}


def devinfo_is_sane(rocid):
    for device in DEVICES:
        text = run_once(rocid, ['ibv_devinfo', '-v', '-d', device])
        need(text, rf'hca_id:\s+{device}', 'its name')
        need(text, r'transport:\s+InfiniBand \(0\)', 'transport')
        need(text, r'state:\s+PORT_ACTIVE \(4\)', 'an active port')
        need(text, r'link_layer:\s+Ethernet', 'link layer')
        need(text, r'max_mtu:\s+4096 \(5\)', 'path MTU 4096')
        need(text, r'phys_state:\s+LINK_UP \(5\)', 'link')
        need(text, r'GID\[\s*\d+\]:\s+::ffff:[\d.]+, RoCE v2', 'an IPv4 GID')
        need(text, r'GID\[\s*\d+\]:\s+(?!::ffff:)[0-9a-f]+:[0-9a-f:]+, RoCE v2', 'an IPv6 GID')
        for attribute, least in AT_LEAST.items():
            value = int(need(text, rf'(?m)^\s*{attribute}:\s+(\d+)', attribute)[1])
            if value < least:
                raise Failure(f'{device}: {attribute} is {value}, at least {least} expected')


def guids_differ(rocid):
    text = run_once(rocid, ['ibv_devinfo'])
    guids = re.findall(r'node_guid:\s+(\S+)', text)
    if len(guids) != len(DEVICES) or len(set(guids)) != len(guids):
        raise Failure(f'node GUIDs {guids}: one for each device wanted, all different')


def exit_code_comes_back(rocid):
    """`roci run` must pass arguments to the program unchanged. It must return the exit code of the program, or end by
    the signal that ended the program."""
    text = run_once(rocid, ['sh', '-c', 'echo "[$1]"; echo $LD_LIBRARY_PATH', 'sh', 'a  b;$x'])
    need(text, r'\[a  b;\$x\]', 'arguments as they were given')
    for command, code in ((['sh', '-c', 'exit 42'], 42), (['sh', '-c', 'kill -TERM $$'], -15), (['/nonexistent'], 127), (['/etc/passwd'], 126)):
        got = Program(rocid, command).wait(20)
        if got != code:
            raise Failure(f'{command} came back as {got}, {code} wanted')


def sysfs_is_there(rocid):
    text = run_once(rocid, ['sh', '-c', 'cd /sys/class/infiniband && for f in roci*/ports/1/state roci*/ports/1/gid_attrs/types/0 '
                                        'roci*/device/numa_node; do echo $f $(cat $f); done; ls -d roci0/device/net; '
                                        'test -c /dev/infiniband/roci0 && test -w /dev/infiniband/roci0 && echo node'])
    for device in DEVICES:
        need(text, rf'{device}/ports/1/state 4: ACTIVE', 'port state')
        need(text, rf'{device}/ports/1/gid_attrs/types/0 RoCE v2', 'GID type')
    need(text, r'roci0/device/net\nnode', 'device/net and the node in /dev/infiniband')


CASES = {
    'ibv_devices lists both devices': lists_devices,
    'ibv_devinfo -v prints sane attributes': devinfo_is_sane,
    'node GUIDs differ': guids_differ,
    'roci run gives arguments and exit codes through': exit_code_comes_back,
    'programs see our devices in /sys and /dev': sysfs_is_there,
}
