#include "net/h1/connection_limit.h"

#include <algorithm>

namespace llorch::net::h1 {
namespace {

constexpr std::size_t kSpareMax = 64;

}  // namespace

ConnectionLimit::ConnectionLimit(std::size_t connections_max)
    : connections_max_(connections_max),
      spare_(std::clamp<std::size_t>(connections_max / 8, 1, kSpareMax)),
      shared_max_(connections_max - connections_max / 16) {}

void ConnectionLimit::add(Member& member) {
  member.state_ = Member::State::kUnknown;
  unknown_.push_back(member);
}

void ConnectionLimit::unlink(Member& member) {
  switch (member.state_) {
    case Member::State::kUnknown: unknown_.erase(unknown_.iterator_to(member)); break;
    case Member::State::kWaiting: waiting_.erase(waiting_.iterator_to(member)); break;
    case Member::State::kBusy:
      --busy_;
      if (--member.account_->second == 0) accounts_.erase(member.account_);
      break;
  }
}

void ConnectionLimit::remove(Member& member) { unlink(member); }

void ConnectionLimit::request_began(Member& member, const std::string& account) {
  if (member.state_ == Member::State::kBusy) return;
  unlink(member);
  member.state_ = Member::State::kBusy;
  member.account_ = accounts_.try_emplace(account, 0).first;
  ++member.account_->second;
  ++busy_;
}

void ConnectionLimit::request_ended(Member& member) {
  if (member.state_ != Member::State::kBusy) return;
  unlink(member);
  member.state_ = Member::State::kWaiting;
  waiting_.push_back(member);
}

ConnectionLimit::Member* ConnectionLimit::gives_way() {
  const std::size_t open = unknown_.size() + waiting_.size() + busy_;
  if (open < std::max(connections_max_, busy_ + spare_)) return nullptr;
  List& larger = unknown_.size() >= waiting_.size() ? unknown_ : waiting_;
  return larger.empty() ? nullptr : &larger.front();
}

ConnectionLimit::Room ConnectionLimit::room() const {
  if (busy_ < connections_max_) return Room::kForAll;
  return busy_ < connections_max_ + spare_ ? Room::kForThisMachine : Room::kNone;
}

ConnectionLimit::Share ConnectionLimit::share_of(std::string_view account) const {
  const auto it = accounts_.find(account);
  const std::size_t busy = it == accounts_.end() ? 0 : it->second;
  const std::size_t others = busy_ - busy;
  const std::size_t left = shared_max_ - std::min(shared_max_, others);
  return {.busy = busy, .busy_max = left - left / 4};
}

}  // namespace llorch::net::h1
