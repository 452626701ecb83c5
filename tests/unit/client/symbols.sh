#!/bin/sh
# Checks the symbols of Rocinante's libibverbs.so.1 (releases.py checks the symbols of all releases of rdma-core). Each default symbol
# of the system's library must exist with the same version, which need not be the default version here. The listed programs and
# libraries must resolve all their symbols if they load this library. Missing programs are skipped and reported.
# Usage: symbols.sh path/to/libibverbs.so.1 [path/to/librdmacm.so.1]
set -u
ours=$(realpath "$1")
folder=$(dirname "$ours")
multiarch=/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
system=$multiarch/libibverbs.so.1
failed=0
tested=0

fail() {
    echo "FAIL: $*"
    failed=1
}
defaults() { nm -D --defined-only "$1" | awk '$3 ~ /@@/ { print $3 }' | sort; }

[ "$(readelf -d "$ours" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libibverbs.so.1 ] || fail "soname"
readelf -d "$ours" | grep -q NODELETE || fail "not marked nodelete"
extra=$(readelf -d "$ours" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v -e '^libc\.so' -e '^ld-linux' -e '^libm\.so' -e '^libpthread\.so' -e '^libdl\.so')
[ -z "$extra" ] || fail "needs more than the C library: $extra"
# Both libraries must run on glibc 2.31 and newer. So they must not need a symbol version that is newer than 2.31.
for library in "$ours" ${2:+"$(realpath "$2")"}; do
    newer=$(objdump -T "$library" | awk '/\*UND\*/' | grep -oE 'GLIBC_2\.[0-9]+[^ ]* +.*' | awk -F'[. )]' '$2 > 31')
    [ -z "$newer" ] || fail "$library needs a glibc newer than 2.31: $newer"
    absolute=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep /)
    [ -z "$absolute" ] || fail "$library is bound to a place: $absolute"
done
leaked=$(nm -D --defined-only "$ours" | awk '$2 != "A" { print $3 }' | grep -v -e '@@*IBVERBS_' -e '^madvise@@GLIBC_')  # such a symbol would replace libc's
[ -z "$leaked" ] || fail "exported without a version: $leaked"

if [ -e "$system" ]; then
    missing=$(mktemp)
    nm -D --defined-only "$ours" | awk '$3 ~ /@/ { sub(/@@?/, "@@", $3); print $3 }' | sort >"$missing.ours"
    defaults "$system" | comm -23 - "$missing.ours" >"$missing"
    [ -s "$missing" ] && fail "missing symbols: $(tr '\n' ' ' <"$missing")"
    echo "default symbols: $(defaults "$system" | wc -l) of the system's library, $(defaults "$ours" | wc -l) of ours"
    rm -f "$missing" "$missing.ours"
else
    echo "SKIP comparison: no $system"
fi

machine() { readelf -h "$1" | sed -n 's/^ *Machine: *//p'; }
if [ "$(machine "$ours")" != "$(machine "$(command -v readelf)")" ]; then
    echo "SKIP programs: the library is for another processor than the programs of this machine"
    exit $failed
fi

resolve() {
    if [ ! -e "$1" ]; then
        echo "SKIP $1: not installed"
        return
    fi
    # Extension modules of Python use symbols of the interpreter. The program that loads the modules provides these
    # symbols.
    problems=$(LD_BIND_NOW=1 LD_LIBRARY_PATH=$folder ldd -r "$1" 2>&1 | grep -E 'undefined symbol|not defined in file|not found' | grep -v -E '(undefined symbol: _?Py)')
    [ -z "$problems" ] || fail "$1: $problems"
    LD_LIBRARY_PATH=$folder ldd "$1" | grep -q "libibverbs.so.1 => $folder" || fail "$1: does not load our library"
    tested=$((tested + 1))
}

for program in ibv_devices ibv_devinfo ibv_asyncwatch ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_xsrq_pingpong \
    ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat raw_ethernet_bw \
    rping ucmatose udaddy mckey rstream riostream rcopy udpong cmtime qperf; do
    resolve /usr/bin/$program
done
for library in librdmacm.so.1 libmlx5.so.1 libmlx4.so.1 libefa.so.1 libmana.so.1 libfabric.so.1; do
    resolve "$multiarch/$library"
done
for file in "$multiarch"/libibverbs/*.so "$multiarch"/ucx/libuct_ib*.so "$multiarch"/ucx/libuct_rdmacm*.so "$multiarch"/fio/fio-rdma.so \
    "$multiarch"/dpdk/pmds-*/librte_*mlx*.so /usr/lib/python3/dist-packages/pyverbs/*.so /usr/lib/python3/dist-packages/pyverbs/providers/*/*.so; do
    case $file in
    *\**) echo "SKIP $file: not installed" ;;
    *) ldd "$file" 2>/dev/null | grep -q libibverbs.so.1 && resolve "$file" ;;
    esac
done

list=$(ROCI_LOG=0 ROCI_SOCKET=/nonexistent/rocid.sock LD_LIBRARY_PATH=$folder ibv_devices 2>&1) || fail "ibv_devices without rocid: $list"
[ "$(echo "$list" | wc -l)" = 2 ] || fail "ibv_devices without rocid printed: $list"

said=$(ROCI_SOCKET=/nonexistent/rocid.sock LD_LIBRARY_PATH=$folder ibv_devices 2>&1 >/dev/null)
[ "$(echo "$said" | grep -c 'no rocid at /nonexistent/rocid.sock')" = 1 ] || fail "ibv_devices does not say once that there is no rocid: $said"

echo "$tested objects resolve against $ours"
[ "$tested" -gt 0 ] || fail "nothing was tested"
exit $failed
