// Inputs that are sequences of records. A record has a kind, the length of its body, and the body. Any bytes form a valid
// sequence, because the last record may be shorter than its length states.
#pragma once

#include <algorithm>
#include <cstring>

#include "target.hpp"

namespace roci::fuzz {

struct Record {
    uint8_t kind = 0;
    Input body;
};
inline constexpr size_t kRecordHead = 3, kMostRecords = 96;

/// Reads the records of an input, at most kMostRecords.
class RecordReader {
public:
    explicit RecordReader(Input input) : rest_(input) {}
    bool next(Record& out) {
        if (rest_.size() < kRecordHead || ++count_ > kMostRecords) return false;
        const size_t length = std::min<size_t>(size_t(rest_[1]) | size_t(rest_[2]) << 8, rest_.size() - kRecordHead);
        out = {rest_[0], rest_.subspan(kRecordHead, length)};
        rest_ = rest_.subspan(kRecordHead + length);
        return true;
    }

private:
    Input rest_;
    size_t count_ = 0;
};

inline void append(Bytes& out, uint8_t kind, Input body) {
    out.push_back(kind);
    out.push_back(uint8_t(body.size()));
    out.push_back(uint8_t(body.size() >> 8));
    out.insert(out.end(), body.begin(), body.end());
}

/// Reads numbers from the start of a body. A missing byte is 0.
class Fields {
public:
    explicit Fields(Input body) : rest_(body) {}
    template <class T>
    T take() {
        T value{};
        const size_t n = std::min(rest_.size(), sizeof value);
        if (n != 0) std::memcpy(static_cast<void*>(&value), rest_.data(), n);
        rest_ = rest_.subspan(n);
        return value;
    }
    uint8_t u8() { return take<uint8_t>(); }
    uint16_t u16() { return take<uint16_t>(); }
    Input rest() const { return rest_; }

private:
    Input rest_;
};

/// Writes numbers and structs to a body.
class Body {
public:
    template <class T>
    Body& put(const T& value) {
        const auto* p = reinterpret_cast<const uint8_t*>(&value);
        bytes_.insert(bytes_.end(), p, p + sizeof value);
        return *this;
    }
    Body& put(Input more) {
        bytes_.insert(bytes_.end(), more.begin(), more.end());
        return *this;
    }
    operator Input() const { return bytes_; }

private:
    Bytes bytes_;
};

}  // namespace roci::fuzz
