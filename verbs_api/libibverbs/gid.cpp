// The GID table.
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "compat/private.hpp"
#include "context.hpp"

namespace roci::client {
namespace {

ibv_gid_entry to_verbs(const abi::GidEntry& e, uint32_t port) {
    ibv_gid_entry out{};
    std::memcpy(out.gid.raw, e.gid.raw, sizeof out.gid.raw);
    out.gid_index = e.index;
    out.port_num = port;
    out.gid_type = IBV_GID_TYPE_ROCE_V2;
    return out;
}

/// Returns the index of the entry's network interface, or 0 if there is no such interface. The index is that of the network
/// namespace of this thread, which may differ from rocid's namespace.
uint32_t interface_of(const abi::GidEntry& e) {
    char name[sizeof e.netdev + 1] = {};
    std::memcpy(name, e.netdev, sizeof e.netdev);
    return name[0] != '\0' ? if_nametoindex(name) : 0;
}

bool valid_port(const Context& c, uint32_t port) { return port >= 1 && port <= std::max<uint32_t>(c.attr.phys_ports, 1); }

/// Reads the valid entries of the device's GID table. The device has one port. Returns 0 or an errno.
int read_table(Context& c, std::unique_ptr<abi::QueryGidTableReply>& table) {
    table.reset(new (std::nothrow) abi::QueryGidTableReply{});
    if (!table) return ENOMEM;
    int err = c.inherited ? EAGAIN : ask_page(c, *table);
    if (err == EAGAIN) err = c.call(abi::Op::query_gid_table, abi::Empty{}, *table);
    table->count = std::min(table->count, uint32_t(std::size(table->entry)));
    return err;
}

/// Reads one entry. Looks up the entry's network interface only if `with_interface` is true, because this look-up needs system
/// calls. Returns 0, ENODATA if the entry is empty, EINVAL if the port or index does not exist, or another errno.
int find_entry(ibv_context* context, uint32_t port, uint32_t index, bool with_interface, ibv_gid_entry& out) {
    Context& c = *Context::from(context);
    if (!valid_port(c, port)) return EINVAL;
    std::unique_ptr<abi::QueryGidTableReply> table;
    if (const int err = read_table(c, table); err != 0) return err;
    for (uint32_t i = 0; i < table->count; ++i) {
        if (table->entry[i].index != index) continue;
        out = to_verbs(table->entry[i], port);
        if (with_interface) out.ndev_ifindex = interface_of(table->entry[i]);
        return 0;
    }
    ibv_port_attr attr{};
    if (const int err = query_port_ex(context, uint8_t(port), &attr, sizeof attr); err != 0) return err;
    return index < uint32_t(attr.gid_tbl_len) ? ENODATA : EINVAL;
}

}  // namespace
}  // namespace roci::client

using namespace roci::client;

// Sets `gid` to zeros if the entry is empty.
int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    ibv_gid_entry entry{};
    const int err = find_entry(context, port, uint32_t(index), false, entry);
    if (err != 0 && err != ENODATA) {
        errno = err;
        return -1;
    }
    *gid = entry.gid;
    return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
                      size_t entry_size) {
    if (flags != 0) return refuse(EINVAL);
    ibv_gid_entry found{};
    if (const int err = find_entry(context, port, index, true, found); err != 0) return refuse(err);
    std::memset(static_cast<void*>(entry), 0, entry_size);
    std::memcpy(static_cast<void*>(entry), &found, std::min(entry_size, sizeof found));
    return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries, uint32_t flags,
                             size_t entry_size) {
    if (flags != 0) return -refuse(EINVAL);
    Context& c = *Context::from(context);
    std::unique_ptr<roci::abi::QueryGidTableReply> table;
    if (const int err = read_table(c, table); err != 0) return -refuse(err);
    if (table->count > max_entries) return -refuse(EINVAL);
    const uint32_t interface = table->count != 0 ? interface_of(table->entry[0]) : 0;  // all entries are of one port
    for (uint32_t i = 0; i < table->count; ++i) {
        ibv_gid_entry e = to_verbs(table->entry[i], 1);
        e.ndev_ifindex = interface;
        std::byte* to = reinterpret_cast<std::byte*>(entries) + i * entry_size;
        std::memset(to, 0, entry_size);
        std::memcpy(to, &e, std::min(entry_size, sizeof e));
    }
    return ssize_t(table->count);
}

namespace roci::client {

int query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type) {
    ibv_gid_entry entry{};
    const int err = find_entry(context, port, index, false, entry);
    if (err != 0 && err != ENODATA) {
        errno = err;
        return -1;
    }
    *type = err == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
    return 0;
}

}  // namespace roci::client
