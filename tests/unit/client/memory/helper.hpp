#pragma once
/// Registers memory and takes the role of rocid: maps the files of the pieces (memory::Piece) and accesses registered
/// ranges through these mappings.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "adopt.hpp"

namespace roci::memory {

inline constexpr size_t kPage = 4096;

inline uint64_t number(const void* p) { return reinterpret_cast<uint64_t>(p); }

/// A registration, and mappings of its pieces like those of rocid.
class Registration {
public:
    explicit Registration(void* address, size_t length, bool need_write = true) : address_(number(address)), length_(length) {
        error = acquire(address, length, need_write, pieces, token);
        for (const Piece& piece : pieces) map(piece);
    }
    ~Registration() {
        end();
        for (auto& [id, view] : views_) ::munmap(view.first, view.second);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    void end() {
        if (token) release(token);
        token = 0;
    }

    /// Returns true if the pieces are in ascending order, have no gaps, and cover exactly the range.
    bool covers() const {
        uint64_t at = address_;
        for (const Piece& piece : pieces) {
            if (piece.address != at || piece.length == 0) return false;
            if (piece.fd >= 0 && piece.fd_offset + piece.length > piece.fd_length) return false;
            at += piece.length;
        }
        return at == address_ + length_;
    }
    bool all_shared() const {
        for (const Piece& piece : pieces) {
            if (piece.fd < 0) return false;
        }
        return !pieces.empty();
    }
    bool none_shared() const {
        for (const Piece& piece : pieces) {
            if (piece.fd >= 0) return false;
        }
        return !pieces.empty();
    }

    /// Returns the address of the byte at `offset` of the range in rocid's mapping. Returns nullptr if the byte is
    /// not shared.
    char* at(size_t offset) {
        for (const Piece& piece : pieces) {
            const uint64_t address = address_ + offset;
            if (address < piece.address || address >= piece.address + piece.length || piece.fd < 0) continue;
            return static_cast<char*>(views_.at(piece.id).first) + piece.fd_offset + (address - piece.address);
        }
        return nullptr;
    }
    std::vector<char> read_back() {
        std::vector<char> bytes(length_);
        for (const Piece& piece : pieces) {
            if (piece.fd >= 0) std::memcpy(bytes.data() + (piece.address - address_), at(piece.address - address_), piece.length);
        }
        return bytes;
    }
    /// Returns true if each side reads what the other side writes. Tests the first, a middle and the last byte of
    /// every piece.
    bool mirrors() {
        for (const Piece& piece : pieces) {
            for (const uint64_t offset : {uint64_t{0}, piece.length / 2, piece.length - 1}) {
                auto* mine = reinterpret_cast<volatile char*>(piece.address + offset);
                volatile char* theirs = at(piece.address - address_ + offset);
                if (!theirs || *mine != *theirs) return false;
                const char before = *mine;
                *mine = static_cast<char>(before + 1);
                if (*theirs != static_cast<char>(before + 1)) return false;
                *theirs = before;
                if (*mine != before) return false;
            }
        }
        return true;
    }

    int error = 0;
    std::vector<Piece> pieces;
    uint64_t token = 0;

private:
    void map(const Piece& piece) {
        if (piece.fd < 0 || views_.count(piece.id)) return;
        void* view = ::mmap(nullptr, piece.fd_length, PROT_READ | (piece.writable ? PROT_WRITE : 0), MAP_SHARED, piece.fd, 0);
        ASSERT_NE(view, MAP_FAILED);
        views_[piece.id] = {view, piece.fd_length};
    }

    uint64_t address_;
    size_t length_;
    std::map<uint64_t, std::pair<void*, size_t>> views_;
};

inline char* map_anonymous(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
    void* p = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

/// Writes a pattern whose bytes depend on their positions, so that a page in a wrong place is detected.
inline void fill(char* p, size_t bytes, unsigned seed = 1) {
    for (size_t i = 0; i < bytes; i++) p[i] = static_cast<char>((i * 31 + (i >> 12) * 7 + seed) % 251 + 1);
}
inline bool filled(const char* p, size_t bytes, unsigned seed = 1) {
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != static_cast<char>((i * 31 + (i >> 12) * 7 + seed) % 251 + 1)) return false;
    }
    return true;
}

/// Runs `body` in a child process, for tests that change the process permanently. Returns true if `body` returns true
/// and no expectation fails in the child.
inline bool in_child_process(const std::function<bool()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        const bool good = body();
        std::fflush(nullptr);
        ::_exit(good && !::testing::Test::HasFailure() ? 0 : 1);
    }
    int status = 0;
    return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace roci::memory
