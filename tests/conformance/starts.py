"""How a rocid starts: by itself, beside others, under a service manager."""
import lab


def engines_on_ordinary_pages():
    """Where there are no hugepages, or not enough of them, each engine's frames must fit into what rocid asks for."""
    for engines in (1, 2, 5, 16):
        with lab.Rocid(args=['--set', 'memory.hugepages=never', '--set', f'engine.count={engines}']) as rocid:
            if 'memory: ordinary pages' not in rocid.log():
                raise lab.Failure(rocid.log())


CASES = {
    'start: many engines on ordinary pages': engines_on_ordinary_pages,
}
