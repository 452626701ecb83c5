#include "mutator.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "records.hpp"

namespace roci::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;

// ---- bytes ----------------------------------------------------------------------------------------------------------

/// Returns a place in the input. Half of the places are among the first 96 bytes, which contain most fields.
size_t place(const Bytes& b, Rng& rng) { return rng.below(rng.chance(0.5) ? std::min<size_t>(b.size(), 96) : b.size()); }

void flip_bit(Bytes& b, Rng& rng, const Bytes&) { b[place(b, rng)] ^= uint8_t(1u << rng.below(8)); }
void set_byte(Bytes& b, Rng& rng, const Bytes&) { b[place(b, rng)] = uint8_t(rng.next()); }
void add_small(Bytes& b, Rng& rng, const Bytes&) { b[place(b, rng)] += uint8_t(rng.between(1, 8) - (rng.chance(0.5) ? 9 : 0)); }

/// Sets a field of 1 to 8 bytes to a limit, in either byte order.
void set_limit(Bytes& b, Rng& rng, const Bytes&) {
    static constexpr uint64_t kLimits[] = {0,
                                           1,
                                           2,
                                           3,
                                           4,
                                           7,
                                           8,
                                           16,
                                           20,
                                           24,
                                           27,
                                           28,
                                           31,
                                           32,
                                           63,
                                           64,
                                           127,
                                           128,
                                           255,
                                           256,
                                           0x7fff,
                                           0x8000,
                                           0x8100,
                                           0xfffc,
                                           0xffff,
                                           0x10000,
                                           0xffffff,
                                           0x7fffffff,
                                           0x80000000,
                                           0xffffffff,
                                           uint64_t{1} << 32,
                                           ~uint64_t{0} >> 1,
                                           ~uint64_t{0} - 4095,
                                           ~uint64_t{0}};
    uint64_t value = kLimits[rng.below(std::size(kLimits))];
    const size_t width = size_t{1} << rng.below(4), at = place(b, rng);
    if (rng.chance(0.5)) value = __builtin_bswap64(value) >> (64 - 8 * width);
    std::memcpy(&b[at], &value, std::min(width, b.size() - at));
}
void truncate(Bytes& b, Rng& rng, const Bytes&) { b.resize(rng.below(b.size())); }
void extend(Bytes& b, Rng& rng, const Bytes&) { b.resize(b.size() + 1 + rng.below(70), uint8_t(rng.next())); }
void erase_inside(Bytes& b, Rng& rng, const Bytes&) {
    const auto at = b.begin() + ptrdiff_t(place(b, rng));
    b.erase(at, at + ptrdiff_t(std::min<uint64_t>(uint64_t(b.end() - at), rng.between(1, 8))));
}
void insert_inside(Bytes& b, Rng& rng, const Bytes&) {
    b.insert(b.begin() + ptrdiff_t(place(b, rng)), rng.between(1, 8), uint8_t(rng.next()));
}
void copy_inside(Bytes& b, Rng& rng, const Bytes&) {
    const size_t from = place(b, rng), to = place(b, rng);
    std::memmove(&b[to], &b[from], std::min<size_t>(rng.between(1, 16), b.size() - std::max(from, to)));
}
void splice(Bytes& b, Rng& rng, const Bytes& other) {
    const size_t at = rng.below(std::min(b.size(), other.size()) + 1);
    b.resize(at);
    b.insert(b.end(), other.begin() + ptrdiff_t(at), other.end());
}

void mutate_bytes(Bytes& b, Rng& rng, const Bytes& other) {
    static constexpr void (*kSteps[])(Bytes&, Rng&, const Bytes&) = {
        flip_bit, set_byte, add_small, set_limit, set_limit, truncate, extend, erase_inside, insert_inside, copy_inside, splice};
    if (b.empty()) b.push_back(uint8_t(rng.next()));
    kSteps[rng.below(std::size(kSteps))](b, rng, other);
}

// ---- text -----------------------------------------------------------------------------------------------------------

/// Replaces a line, or inserts a line, of another text.
void mutate_lines(Bytes& b, Rng& rng, const Bytes& other) {
    const auto line_at = [](const Bytes& t, size_t at) {
        const auto begin = std::find(std::make_reverse_iterator(t.begin() + ptrdiff_t(at)), t.rend(), '\n').base();
        const auto end = std::find(begin, t.end(), '\n');
        return std::pair(size_t(begin - t.begin()), size_t(end - t.begin()));
    };
    if (other.empty()) return;
    const auto [from, to] = line_at(other, rng.below(other.size()));
    const auto [begin, end] = line_at(b, rng.below(b.size() + 1));
    if (rng.chance(0.5)) b.erase(b.begin() + ptrdiff_t(begin), b.begin() + ptrdiff_t(end));
    Bytes line(other.begin() + ptrdiff_t(from), other.begin() + ptrdiff_t(to));
    line.push_back('\n');
    b.insert(b.begin() + ptrdiff_t(begin), line.begin(), line.end());
}

// ---- records --------------------------------------------------------------------------------------------------------

struct Piece {
    uint8_t kind;
    Bytes body;
};
std::vector<Piece> pieces_of(const Bytes& input) {
    std::vector<Piece> all;
    RecordReader reader(input);
    for (Record r; reader.next(r);) all.push_back({r.kind, {r.body.begin(), r.body.end()}});
    return all;
}

void change_kind(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>&) {
    p[rng.below(p.size())].kind = uint8_t(rng.next());
}
void drop(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>&) { p.erase(p.begin() + ptrdiff_t(rng.below(p.size()))); }
void repeat(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>&) {
    const Piece copy = p[rng.below(p.size())];
    p.insert(p.begin() + ptrdiff_t(rng.below(p.size() + 1)), copy);
}
void swap_two(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>&) {
    std::swap(p[rng.below(p.size())], p[rng.below(p.size())]);
}
void end_early(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>&) { p.resize(1 + rng.below(p.size())); }
void insert_other(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>& other) {
    if (!other.empty()) p.insert(p.begin() + ptrdiff_t(rng.below(p.size() + 1)), other[rng.below(other.size())]);
}
void add_other(std::vector<Piece>& p, Rng& rng, const std::vector<Piece>& other) {
    p.insert(p.end(), other.begin() + ptrdiff_t(rng.below(other.size() + 1)), other.end());
}

}  // namespace

const Bytes& Mutator::any(Rng& rng) const { return corpus_[rng.below(corpus_.size())]; }

void Mutator::mutate_records(Bytes& input, Rng& rng) const {
    static constexpr void (*kSteps[])(std::vector<Piece>&, Rng&, const std::vector<Piece>&) = {
        change_kind, drop, drop, repeat, repeat, swap_two, end_early, insert_other, insert_other, add_other};
    std::vector<Piece> pieces = pieces_of(input);
    const std::vector<Piece> other = pieces_of(any(rng));
    if (pieces.empty()) pieces.push_back({});
    if (rng.chance(0.6)) {
        mutate_bytes(pieces[rng.below(pieces.size())].body, rng, other.empty() ? Bytes{} : other[rng.below(other.size())].body);
    } else {
        kSteps[rng.below(std::size(kSteps))](pieces, rng, other);
    }
    input.clear();
    for (const Piece& p : pieces) append(input, p.kind, p.body);
}

void Mutator::mutate(Bytes& input, Rng& rng) const {
    if (target_.shape == Shape::records && rng.chance(0.95)) return mutate_records(input, rng);
    if (target_.shape == Shape::text && rng.chance(0.5)) return mutate_lines(input, rng, any(rng));
    mutate_bytes(input, rng, any(rng));
    if (input.size() > kLongest) input.resize(kLongest);
}

Bytes Mutator::make(Rng& rng) const {
    Bytes input = any(rng);
    for (uint64_t n = rng.below(5); n > 0; --n) mutate(input, rng);
    if (target_.repair != nullptr) target_.repair(input, rng);
    return input;
}

}  // namespace roci::fuzz
