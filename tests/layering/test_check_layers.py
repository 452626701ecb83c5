#!/usr/bin/env python3
"""Tests the layering check. It breaks each rule once in a fake tree."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_layers  # noqa: E402

# Rows: (file, include line, whether the line is a violation).
TABLE = [
    ('stack/wire/a.hpp', '#include "base/types.hpp"', False),
    ('stack/wire/a.hpp', '#include "qp/spec.hpp"', True),
    ('stack/base/a.hpp', '#include "wire/packet.hpp"', True),
    ('stack/qp/a.cpp', '#include "engine/engine.hpp"', True),
    ('stack/rings/a.hpp', '#include "io/event.hpp"', False),
    ('stack/rings/a.hpp', '#include "engine/engine.hpp"', True),
    ('stack/engine/a.cpp', '#include "host/conductor.hpp"', True),
    ('stack/host/a.cpp', '#include "engine/engine.hpp"', False),
    ('stack/host/a.cpp', '#include "abi/control.hpp"', False),
    ('stack/host/a.cpp', '#include <sys/mman.h>', True),
    ('stack/qp/a.cpp', '  #  include <chrono>', True),
    ('stack/host/a.cpp', '#include "host/paths/resolve.hpp"', True),
    ('stack/host/paths/a.cpp', '#include "host/state.hpp"', False),
    ('stack/host/paths/a.cpp', '#include "host/paths/resolve.hpp"', False),
    ('stack/host/paths/a.cpp', '#include "host/objects/handlers.hpp"', True),
    ('stack/host/objects/a.cpp', '#include "host/paths/resolve.hpp"', False),
    ('stack/host/objects/a.cpp', '#include "engine/command.hpp"', False),
    ('stack/host/rdma_cm/a.cpp', '#include "host/objects/handlers.hpp"', True),
    ('stack/host/sessions/a.cpp', '#include "host/rdma_cm/service.hpp"', False),
    ('stack/host/sessions/a.cpp', '#include <sys/mman.h>', True),
    ('stack/engine/a.cpp', '#include "host/paths/resolve.hpp"', True),
    ('stack/qp/a.cpp', 'namespace roci::qp {', False),
    ('stack/qp/a.cpp', 'namespace roci::qp::detail {', False),
    ('stack/qp/a.cpp', 'namespace roci {', False),
    ('stack/qp/a.cpp', 'namespace roci::engine {', True),
    ('stack/host/paths/a.cpp', 'namespace roci::host::paths {', False),
    ('stack/host/paths/a.cpp', 'namespace roci::host {', False),
    ('stack/host/paths/a.cpp', 'namespace roci::host::objects {', True),
    ('stack/qp/a.cpp', '#include <rte_mbuf.h>', True),
    ('pmd_glue/a.cpp', '#include <rte_mbuf.h>', False),
    ('stack/io/a.hpp', '#include "rings/queues.hpp"', True),
    ('pmd_glue/a.cpp', '#include "io/port.hpp"', False),
    ('pmd_glue/a.cpp', '#include "roci/run.hpp"', True),
    ('verbs_api/libibverbs/a.cpp', '#include "abi/rings.hpp"', False),
    ('verbs_api/libibverbs/a.cpp', '#include "base/types.hpp"', True),
    ('verbs_api/libibverbs/a.cpp', '#include <rte_eal.h>', True),
    ('verbs_api/libibverbs/a.cpp', '#include <sys/mman.h>', False),
    ('verbs_api/abi/a.hpp', '#include "rings/queues.hpp"', True),
]


class CheckLayers(unittest.TestCase):
    def test_each_rule(self):
        for path, line, breach in TABLE:
            with self.subTest(path=path, line=line), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True)
                file.write_text(f'#pragma once\n{line}\n')
                found = list(check_layers.problems_in(pathlib.Path(folder)))
                self.assertEqual(len(found), 1 if breach else 0, found)
                if breach:
                    self.assertTrue(found[0].startswith(f'{path}:2: '), found[0])

    def test_lengths(self):
        head = 'int f(int a,\n      int b) {\n'
        for name, text, breach in [
            ('short', head + '    g();\n' * 47 + '}\n', False),
            ('long', head + '    g();\n' * 48 + '}\n', True),
            ('declaration', 'int f(int a,\n      int b);\n' + '\n' * 60 + '}\n', False),
            ('member', 'struct S {\n    void f() const {\n' + '        g();\n' * 49 + '    }\n};\n', True),
            ('class', 'class C {\n' + '    int g();\n' * 60 + '};\n', False),
            ('file', '// nothing\n' * 500, False),
            ('long file', '// nothing\n' * 501, True),
        ]:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / 'apps' / 'a.cpp'
                file.parent.mkdir()
                file.write_text(text)
                self.assertEqual(len(list(check_layers.problems_in(pathlib.Path(folder)))), 1 if breach else 0)


if __name__ == '__main__':
    unittest.main()
