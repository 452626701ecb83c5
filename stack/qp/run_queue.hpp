// Schedules the QPs of an engine. A turn is one call of a QP's requester or responder. Users are served by deficit round robin
// (Shreedhar and Varghese, 1995), and the sessions of a user too. The QPs of a session are served in the order in which they
// were added. Users have equal shares of an engine, whatever number of sessions and QPs they have. The sessions of a user have
// equal shares as well. Memory is allocated only when a session is added. A QP that its congestion controller delays is not in
// the run queue of requesters; the QP is added again at its pacing deadline. A user who has sent more than the user's rate
// permits is parked: the QPs of this user get no turns until release().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/line_memory.hpp"
#include "qp/state.hpp"
#include "qp/user_rate.hpp"

namespace roci::qp {

/// Cost of sending one packet, expressed in bytes. The cost of a turn is this amount per packet plus the bytes sent.
inline constexpr uint32_t kPacketCost = 512;
/// The cost that a user or session may incur before the next user or session is served: about eight full packets.
inline constexpr int64_t kShareQuantum = 8 * (kPacketCost + 4096);

/// Limit of a negative credit that spend() causes.
inline constexpr int64_t kMostDebt = 16 * kShareQuantum;

/// How a QP ended its turn.
enum class TurnEnd : uint8_t {
    without_work,  ///< the QP did nothing: it had no work, or had to wait
    finished,      ///< the QP worked and can do no more now
    interrupted,   ///< the QP worked and has more work; also each responder that worked, even if it has no more work
};

/// A circular list for deficit round robin. The first member is served as long as its credit is positive. A member has the
/// fields `next`, `previous` and `credit`.
template <class Member>
class Rotation {
public:
    bool empty() const { return first_ == nullptr; }
    bool several() const { return first_ != nullptr && first_->next != first_; }
    Member& first() const { return *first_; }
    void add(Member& m) {
        if (first_ == nullptr) {
            m.next = m.previous = first_ = &m;
            return;
        }
        m.next = first_;
        m.previous = first_->previous;
        m.previous->next = first_->previous = &m;
    }
    void remove(Member& m) {
        m.previous->next = m.next;
        m.next->previous = m.previous;
        if (first_ == &m) first_ = m.next != &m ? m.next : nullptr;
        m.next = m.previous = nullptr;
    }
    /// Ends the turn of the first member.
    void pass_on() { first_ = first_->next; }
    /// Advances to the first member whose credit is positive and returns this member. Each skipped member gets a quantum of
    /// credit.
    Member& with_credit() {
        while (first_->credit <= 0) {
            first_->credit += kShareQuantum;
            first_ = first_->next;
        }
        return *first_;
    }

private:
    Member* first_ = nullptr;
};

/// The QPs that wait for a turn of one role, requester or responder. Each session of a user has a share, which has a number.
/// Qp::share is the number of the share of the QP's session, or 0 if the QP has no session.
template <Turn Qp::*turn>
class RunQueue {
public:
    RunQueue() { open(0, 0); }
    RunQueue(const RunQueue&) = delete;

    /// Adds a share to a user. `share` and `user` are indices, so the numbers must be small. The number of a share is used again
    /// after close(), and the number of a user after leave(). `rate` limits what the user sends; nullptr means that there is no
    /// limit.
    void open(uint16_t share, uint16_t user, UserRate* rate = nullptr) {
        if (user >= users_.size()) users_.resize(user + 1u);
        if (users_[user] == nullptr) users_[user] = std::make_unique<User>();
        users_[user]->number = user;
        users_[user]->rate = rate;
        limits_ = limits_ || rate != nullptr;
        parked_.reserve(users_.size());
        if (share >= sessions_.size()) sessions_.resize(share + 1u);
        sessions_[share] = std::make_unique<Session>();
        sessions_[share]->user = users_[user].get();
    }
    /// Removes a share that has no QP on the list.
    void close(uint16_t share) { sessions_[share].reset(); }
    /// Called when a user has no shares any more. Removes the user's rate, and the user is no longer parked.
    void leave(uint16_t user) {
        std::erase(parked_, users_[user].get());
        users_[user]->resumes = 0;
        users_[user]->rate = nullptr;
    }

    /// Returns the number of QPs on the list, including the QPs of parked users.
    uint32_t count() const { return count_; }
    /// Returns true if there is no QP that take() could return.
    bool empty() const { return active_.empty(); }
    /// Returns true if QPs of several users wait. Turns should then be short.
    bool contended() const { return active_.several(); }

    /// Appends the QP to the list of its session, if the QP is not on the list yet.
    void add(Qp& qp) {
        Turn& t = qp.*turn;
        if (t.listed()) return;
        Session& s = *sessions_[qp.share];
        t = {nullptr, s.end};
        *s.end = &qp;
        s.end = &t.next;
        ++count_;
        if (!s.listed()) enlist(s);
    }
    void remove(Qp& qp) {
        if (!(qp.*turn).listed()) return;
        Session& s = *sessions_[qp.share];
        unlink(s, qp);
        if (s.first == nullptr && &s != served_) delist(s);
    }
    /// Removes the next QP from the list and returns this QP, whose turn begins. The list must not be empty. done() must
    /// follow.
    Qp& take() {
        served_ = &active_.with_credit().sessions.with_credit();
        turn_of_ = served_->first;
        unlink(*served_, *turn_of_);
        return *turn_of_;
    }
    /// Returns the number of the user whose QP has its turn. Valid between take() and done().
    uint16_t user() const { return served_->user->number; }
    /// Returns the number of the user who owns the QP.
    uint16_t user_of(const Qp& qp) const { return sessions_[qp.share]->user->number; }
    /// Ends the turn of the QP that take() returned. The caller may have added the QP to the list again. Subtracts `cost` from
    /// the credit of the session and of the user. In two cases the next user and session are served whatever credit is left:
    /// the QP did nothing, or the QP has finished and is the first of its session on the list.
    void done(uint64_t cost, TurnEnd end) {
        Session& s = *std::exchange(served_, nullptr);
        s.credit -= int64_t(cost);
        s.user->credit -= int64_t(cost);
        if (end == TurnEnd::without_work || (end == TurnEnd::finished && s.first == turn_of_)) {
            s.user->sessions.pass_on();
            active_.pass_on();
        }
        if (s.first == nullptr) delist(s);
    }
    /// Returns true if a user with a limited rate has used this queue.
    bool limits() const { return limits_; }
    /// Charges what the QP has sent in its turn to the rate of its user. Called after done() if limits() is true. Parks the
    /// user if the rate is exceeded.
    void charge(const Qp& qp, Nanos now, uint64_t packets, uint64_t bytes) {
        User& u = *sessions_[qp.share]->user;
        if (u.rate == nullptr || bytes == 0) return;
        const Nanos at = u.rate->charge(now, packets, bytes);
        if (at <= now || u.resumes != 0) return;
        u.rate->count_wait();
        u.resumes = at;
        parked_.push_back(&u);
        if (u.listed()) active_.remove(u);
    }
    /// Subtracts the cost of what the QP has sent outside a turn from the credit of its session and of its user. The debt is
    /// limited, because with_credit() adds the quanta one by one.
    void spend(const Qp& qp, uint64_t cost) {
        Session& s = *sessions_[qp.share];
        for (int64_t* credit : {&s.credit, &s.user->credit}) *credit = std::max(*credit - int64_t(cost), -kMostDebt);
    }
    /// Returns true if the rate of the QP's user permits no sending now.
    bool over_limit(const Qp& qp, Nanos now) const {
        const UserRate* rate = sessions_[qp.share]->user->rate;
        return rate != nullptr && rate->due() > now;
    }
    /// Ends the parking of each user whose rate permits sending now.
    void release(Nanos now) {
        std::erase_if(parked_, [&](User* u) {
            if (u->resumes > now) return false;
            u->resumes = u->rate->due();  // another engine may have sent in the meantime
            if (u->resumes > now) return false;
            u->resumes = 0;
            if (!u->sessions.empty()) active_.add(*u);
            return true;
        });
    }
    /// Returns the time when release() should be called, or kNever.
    Nanos next_release() const {
        Nanos next = kNever;
        for (const User* u : parked_) next = std::min(next, u->resumes);
        return next;
    }
    bool parked(const Qp& qp) const { return sessions_[qp.share]->user->resumes != 0; }
    /// Returns the QP that take() is likely to return next, or nullptr if the list is empty.
    Qp* peek() const { return active_.empty() ? nullptr : active_.first().sessions.first().first; }
    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& s : sessions_)
            for (Qp* qp = s != nullptr ? s->first : nullptr; qp != nullptr; qp = (qp->*turn).next) visit(*qp);
    }

private:
    struct User;
    struct alignas(64) Session {  // aligned, so that no cache line is shared with another engine
        Qp* first = nullptr;
        Qp** end = &first;  ///< place of the link to the next QP that is added
        User* user = nullptr;
        Session *next = nullptr, *previous = nullptr;
        int64_t credit = kShareQuantum;
        bool listed() const { return next != nullptr; }
    };
    struct alignas(64) User {
        Rotation<Session> sessions;  ///< sessions that have QPs on the list
        User *next = nullptr, *previous = nullptr;
        int64_t credit = kShareQuantum;
        UserRate* rate = nullptr;
        Nanos resumes = 0;  ///< 0: not parked
        uint16_t number = 0;
        bool listed() const { return next != nullptr; }
    };

    void unlink(Session& s, Qp& qp) {
        Turn& t = qp.*turn;
        *t.link = t.next;
        (t.next != nullptr ? (t.next->*turn).link : s.end) = t.link;
        t = {};
        --count_;
    }
    void enlist(Session& s) {
        s.user->sessions.add(s);
        if (!s.user->listed() && s.user->resumes == 0) active_.add(*s.user);
    }
    /// Removes a session without QPs from the rotation. If the user has no other session with QPs, removes the user too. Idle
    /// sessions and users keep at most one quantum of credit. A negative credit stays unchanged.
    void delist(Session& s) {
        s.credit = std::min(s.credit, kShareQuantum);
        s.user->sessions.remove(s);
        if (!s.user->sessions.empty()) return;
        s.user->credit = std::min(s.user->credit, kShareQuantum);
        if (s.user->listed()) active_.remove(*s.user);
    }

    LineVector<std::unique_ptr<Session>> sessions_;  ///< indexed by share
    LineVector<std::unique_ptr<User>> users_;        ///< by user; never removed, because numbers are used again
    Rotation<User> active_;                          ///< users that have QPs on the list and are not parked
    LineVector<User*> parked_;
    bool limits_ = false;
    Session* served_ = nullptr;  ///< session whose turn is in progress
    Qp* turn_of_ = nullptr;      ///< QP whose turn is in progress, or whose turn was the last
    uint32_t count_ = 0;
};

}  // namespace roci::qp
