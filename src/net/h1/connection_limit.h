#pragma once
// How many connections a server has, and which one gives way to a new one. Pure; on the io thread only.
#include <boost/intrusive/list.hpp>
#include <cstddef>

namespace llorch::net::h1 {

// A connection with an authorised request keeps its place. Of the others the one gives way that has waited longest: since its last
// such request, or since it came. So a new one always gets in. Those that had such a request and those that had none yet are two
// groups, of which the larger gives way: what strangers hold takes no place from fewer clients, and clients that wait leave places to
// new ones. Each call is O(1).
class ConnectionLimit {
 public:
  class Member : public boost::intrusive::list_base_hook<> {
    friend class ConnectionLimit;
    enum class State { kUnknown, kWaiting, kBusy };
    State state_ = State::kUnknown;
  };

  // A few places more are for connections that are told that no request of theirs has room, and as many for requests of this
  // machine.
  explicit ConnectionLimit(std::size_t connections_max);

  // A new one. REQUIRES: `member` is removed before its end.
  void add(Member& member);
  void remove(Member& member);
  // An authorised request of its has begun, or has ended. Nothing happens where that is known.
  void request_began(Member& member);
  void request_ended(Member& member);

  // To be removed before another one is added; null: there is room.
  Member* gives_way();

  // For one more authorised request. Callers of this machine, which look after its daemons, have the last places.
  enum class Room { kForAll, kForThisMachine, kNone };
  Room room() const;

 private:
  using List = boost::intrusive::list<Member>;
  void unlink(Member& member);

  const std::size_t connections_max_;
  const std::size_t spare_;
  // In both lists those that have waited longest are in front.
  List unknown_;  // had no authorised request yet
  List waiting_;  // for their next one
  std::size_t busy_ = 0;
};

}  // namespace llorch::net::h1
