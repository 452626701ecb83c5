#include "memory.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace roci::weak {
namespace {

bool acquires(int order) {
    return order == int(std::memory_order_acquire) || order == int(std::memory_order_consume) ||
           order == int(std::memory_order_acq_rel) || order == int(std::memory_order_seq_cst);
}
bool releases(int order) {
    return order == int(std::memory_order_release) || order == int(std::memory_order_acq_rel) ||
           order == int(std::memory_order_seq_cst);
}
bool sequential(int order) { return order == int(std::memory_order_seq_cst); }

}  // namespace

Memory::Memory(Choose choose, std::vector<std::pair<void*, size_t>> shared, size_t count)
    : choose_(std::move(choose)), shared_(std::move(shared)), thread_count_(count) {
    for (size_t t = 0; t < count; ++t) threads[t].now.clock[t] = 1;
}

bool Memory::contains(uintptr_t address) const {
    return std::ranges::any_of(shared_, [&](const auto& s) { return address - reinterpret_cast<uintptr_t>(s.first) < s.second; });
}

/// Returns the index of a location. The first access to an address creates its location, with the current value in
/// memory.
size_t Memory::at(const Access& a) {
    for (size_t i = 0; i < locations_.size(); ++i)
        if (locations_[i].address == a.address) return i;
    if (locations_.size() == kMostLocations) throw std::length_error("too many locations");
    Location l{a.address, a.size, {Value{}}, {0}};
    std::memcpy(&l.values[0].bits, reinterpret_cast<const void*>(a.address), a.size);
    locations_.push_back(std::move(l));
    return locations_.size() - 1;
}

void Memory::join(Knowledge& to, const Knowledge& from, bool clock) const {
    for (size_t i = 0; i < locations_.size(); ++i) {
        const auto& v = locations_[i].values;
        if (v[from.view[i]].rank > v[to.view[i]].rank) to.view[i] = from.view[i];
    }
    for (size_t t = 0; clock && t < thread_count_; ++t) to.clock[t] = std::max(to.clock[t], from.clock[t]);
}

/// Returns the rank of the oldest value that the thread may load. A sequentially consistent load must not return an older
/// value than the last sequentially consistent operation on the location.
uint16_t Memory::oldest(size_t thread, size_t location, int order) const {
    const auto& v = locations_[location].values;
    const uint16_t seen = v[threads[thread].now.view[location]].rank;
    return sequential(order) ? std::max(seen, v[sequential_[location]].rank) : seen;
}

/// Updates the state of a thread that has read a value.
void Memory::see(size_t thread, size_t location, uint16_t value, int order) {
    ThreadState& t = threads[thread];
    const Knowledge& carried = locations_[location].values[value].carries;
    t.now.view[location] = value;
    t.read |= uint64_t{1} << location;
    join(t.acquired, carried);
    if (acquires(order)) join(t.now, carried);
    if (sequential(order)) sequential_[location] = value;
}

uint64_t Memory::load(size_t thread, Access a, bool newest) {
    const size_t i = at(a);
    use(thread, a.address, 1, atomic_read);
    const uint16_t from = oldest(thread, i, a.order);
    const auto count = uint32_t(locations_[i].order.size() - from);
    // The newest value is the first choice, so that the first executions are the usual ones.
    const uint16_t value = locations_[i].order[locations_[i].order.size() - 1 - (newest ? 0 : choose_(count))];
    see(thread, i, value, a.order);
    return locations_[i].values[value].bits;
}

/// Stores a value at a rank of the modification order. The value of an update also carries the knowledge of the value that
/// the update has read (`after`).
void Memory::put(size_t thread, size_t location, uint16_t rank, uint64_t bits, int order, const Value* after) {
    Location& l = locations_[location];
    ThreadState& t = threads[thread];
    const auto index = uint16_t(l.values.size());
    Value value{bits, rank, false, {}};
    if (after != nullptr) value.carries = after->carries;
    join(value.carries, t.released);
    if (releases(order)) join(value.carries, t.now);
    ++t.now.clock[thread];
    l.values.push_back(value);
    l.order.insert(l.order.begin() + rank, index);
    for (uint16_t r = rank; r < l.order.size(); ++r) l.values[l.order[r]].rank = r;
    l.values[index].carries.view[location] = index;
    t.now.view[location] = index;
    if (sequential(order)) sequential_[location] = index;
    std::memcpy(reinterpret_cast<void*>(l.address), &l.values[l.order.back()].bits, l.size);
    for (size_t other = 0; other < thread_count_; ++other)
        if (other != thread) threads[other].news |= uint64_t{1} << location;
    ++stores;
}

void Memory::store(size_t thread, Access a, uint64_t bits) {
    const size_t i = at(a);
    use(thread, a.address, 1, atomic_write);
    const Location& l = locations_[i];
    std::vector<uint16_t> places;  // ranks; nothing comes between a value and its update
    for (auto rank = uint16_t(l.order.size()); rank > oldest(thread, i, a.order); --rank)
        if (!l.values[l.order[rank - 1]].updated) places.push_back(rank);
    put(thread, i, places[choose_(uint32_t(places.size()))], bits, a.order, nullptr);
}

uint64_t Memory::update(size_t thread, Access a, const Change& change, int order_of_failure, bool newest) {
    const size_t i = at(a);
    use(thread, a.address, 1, atomic_write);
    std::vector<uint16_t> sources;
    const Location& l = locations_[i];
    for (auto rank = uint16_t(l.order.size()); rank > oldest(thread, i, a.order); --rank) {
        const Value& v = l.values[l.order[rank - 1]];
        if (!v.updated || !change(v.bits)) sources.push_back(l.order[rank - 1]);
    }
    const uint16_t source = sources[newest ? 0 : choose_(uint32_t(sources.size()))];
    const uint64_t old = l.values[source].bits;
    const auto fresh = change(old);
    see(thread, i, source, fresh ? a.order : order_of_failure);
    if (!fresh) return old;
    locations_[i].values[source].updated = true;
    const Value after = locations_[i].values[source];
    put(thread, i, uint16_t(after.rank + 1), *fresh, a.order, &after);
    return old;
}

void Memory::fence(size_t thread, int order) {
    ThreadState& t = threads[thread];
    if (acquires(order)) join(t.now, t.acquired);
    if (sequential(order)) {
        Knowledge all;
        all.view = sequential_;
        join(t.now, all, false);
        sequential_ = t.now.view;
    }
    if (releases(order)) t.released = t.now;
    ++t.now.clock[thread];
}

void Memory::plain(size_t thread, uintptr_t address, size_t size, bool writes) {
    use(thread, address, size, writes ? plain_write : plain_read);
}

/// Records the use of each byte. Atomic operations record only the use of their first byte. If the use races with an earlier
/// use, stores a description of the first such race in `race`.
void Memory::use(size_t thread, uintptr_t address, size_t size, Use use) {
    static constexpr bool kConflicts[kUses][kUses] = {// plain_read plain_write atomic_read atomic_write
                                                      {false, true, false, true},
                                                      {true, true, true, true},
                                                      {false, true, false, false},
                                                      {true, true, false, false}};
    static constexpr const char* kNames[kUses] = {"read", "write", "atomic read", "atomic write"};
    const auto& clock = threads[thread].now.clock;
    for (uintptr_t b = address; b < address + size; ++b) {
        if (!contains(b)) continue;
        Byte& byte = bytes_[b];
        for (size_t u = 0; u < kUses; ++u)
            for (size_t t = 0; t < thread_count_; ++t)
                if (kConflicts[use][u] && t != thread && byte.used[u][t] > clock[t] && race.empty())
                    race = std::string("data race: ") + kNames[use] + " in step " + threads[thread].step + ", " + kNames[u] +
                           " in step " + byte.step[t];
        byte.used[use][thread] = clock[thread];
        byte.step[thread] = threads[thread].step;
    }
}

}  // namespace roci::weak
