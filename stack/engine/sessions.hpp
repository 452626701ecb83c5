// The sessions that an engine serves, grouped by user. look_around() selects the sessions whose doorbells a round collects.
// Users are served one after the other, as in the run queues. A user therefore delays other users only for a limited time,
// however many doorbells the user rings or sessions the user opens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "abi/rings.hpp"
#include "base/line_memory.hpp"
#include "qp/context.hpp"
#include "rings/doorbell.hpp"

namespace roci::engine {

struct alignas(64) Session {  // aligned, so that no cache line is shared with another engine
    uint32_t id = 0;
    abi::DoorbellPage* page = nullptr;
    uint16_t share = 0;             ///< number of the session's share in the run queues
    uint32_t next_word = 0;         ///< word of the page where the next collection starts
    LineVector<qp::Qp*> slots;      ///< QPs, indexed by doorbell bit
    LineVector<qp::Srq*> tag_srqs;  ///< tag matching SRQs, indexed by doorbell bit - abi::kFirstTagSlot
};

class Sessions {
public:
    /// Limits per round: number of users, sessions and doorbells, and number of doorbells per session. A collection handles
    /// whole words of 64 doorbells, so the number of doorbells may exceed a limit by up to 63.
    static constexpr uint32_t kRoundUsers = 32, kRoundSessions = 32, kRoundRings = 512, kSessionRings = 256;

    struct Owner {
        uint32_t session = 0, uid = 0;
        qp::UserRate* rate = nullptr;  ///< nullptr: no limit
    };
    /// Adds a session of a user. Returns false if there are too many sessions or users.
    bool attach(qp::Context& ctx, const Owner& owner, abi::DoorbellPage* page);
    /// Removes a session whose QPs have been removed before.
    void detach(qp::Context& ctx, uint32_t id);
    /// Returns nullptr if there is no session with this number.
    Session* find(uint32_t id);
    /// Moves the QP to the share of `session` in the run queues, or to share 0 if `session` is nullptr.
    void enter(qp::Context& ctx, const Session* session, qp::Qp& qp);

    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& [id, s] : all_) visit(*s);
    }
    /// Collects doorbells of the next users and sessions, within the limits per round. look(session, limit) collects the
    /// doorbells of one session and returns their number. Returns true if there was a doorbell.
    template <class Look>
    bool look_around(Look look) {
        const auto count = uint32_t(users_.size());
        const uint32_t visited = std::min(count, kRoundUsers);
        bool any = false;
        for (uint32_t i = 0; i < visited; ++i) {
            User& user = *users_[next_user_];
            if (++next_user_ == count) next_user_ = 0;
            any |= look_at_user(user, visited, look);
        }
        return any;
    }
    /// Returns true if a doorbell of any session is possibly set.
    bool doorbell_pending() const {
        for (const auto& [id, s] : all_)
            if (rings::doorbell_pending(*s->page)) return true;
        return false;
    }

private:
    struct alignas(64) User {
        uint32_t uid = 0;
        uint16_t number = 0;  ///< number of the user in the run queues
        LineVector<Session*> sessions;
        uint32_t next = 0;  ///< index of the session to be served next
    };

    template <class Look>
    bool look_at_user(User& user, uint32_t users, Look look) {
        const auto count = uint32_t(user.sessions.size());
        const uint32_t visits = std::min(count, std::max(kRoundSessions / users, 1u));
        uint32_t left = std::max(kRoundRings / users, 1u);
        bool any = false;
        for (uint32_t i = 0; i < visits && left != 0; ++i) {
            Session& s = *user.sessions[user.next];
            if (++user.next == count) user.next = 0;
            const uint32_t rung = look(s, std::min(left, kSessionRings));
            left -= std::min(left, rung);
            any |= rung != 0;
        }
        return any;
    }

    std::map<uint32_t, std::unique_ptr<Session>> all_;  ///< all sessions by ID
    LineVector<std::unique_ptr<User>> users_;           ///< users that have sessions
    std::vector<bool> shares_{true}, numbers_{true};    ///< true: the number is in use; 0 is for QPs without a session
    uint32_t next_user_ = 0;
};

}  // namespace roci::engine
