#pragma once
// How many connections a server has, and which one gives way to a new one. Pure; on the io thread only.
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace llorch::net::h1 {

// A connection with an authorised request keeps its place. Of the others the one gives way that has waited longest: since its last
// such request, or since it came. So a new one always gets in. Those that had such a request and those that had none yet are two
// groups, of which the larger gives way: what strangers hold takes no place from fewer clients, and clients that wait leave places to
// new ones. Each call takes no longer with more connections.
class ConnectionLimit {
  using Accounts = std::map<std::string, std::size_t, std::less<>>;

 public:
  class Member : public boost::intrusive::list_base_hook<> {
    friend class ConnectionLimit;
    enum class State { kUnknown, kWaiting, kBusy };
    State state_ = State::kUnknown;
    Accounts::iterator account_;  // while it is busy
  };

  // A few places more are for connections that are told that no request of theirs has room, and as many for requests of this
  // machine.
  explicit ConnectionLimit(std::size_t connections_max);

  // A new one. REQUIRES: `member` is removed before its end.
  void add(Member& member);
  void remove(Member& member);
  // An authorised request of its, of the caller `account`, has begun, or has ended. Nothing happens where that is known.
  void request_began(Member& member, const std::string& account);
  void request_ended(Member& member);

  // To be removed before another one is added; null: there is room.
  Member* gives_way();

  // For one more authorised request. Callers of this machine, which look after its daemons, have the last places.
  enum class Room { kForAll, kForThisMachine, kNone };
  Room room() const;

  // For one more authorised request of a caller that shares the server with others: it has at most three quarters of what these
  // leave, less a sixteenth of all that is for operators and nodes. So whoever comes finds room, however long the others stay.
  struct Share {
    std::size_t busy = 0;
    std::size_t busy_max = 0;
    bool has_room() const { return busy < busy_max; }
  };
  Share share_of(std::string_view account) const;

 private:
  using List = boost::intrusive::list<Member>;
  void unlink(Member& member);

  const std::size_t connections_max_;
  const std::size_t spare_;
  const std::size_t shared_max_;
  // In both lists those that have waited longest are in front.
  List unknown_;  // had no authorised request yet
  List waiting_;  // for their next one
  std::size_t busy_ = 0;
  Accounts accounts_;  // that have busy ones
};

}  // namespace llorch::net::h1
