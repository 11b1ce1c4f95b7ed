#include "net/lookups.h"

#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace llorch::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kNamesMax = 64;  // at a time, each of them a thread

error_code error_of(int code) {
  switch (code) {
    case 0: return {};
    case EAI_AGAIN: return asio::error::host_not_found_try_again;
    case EAI_NONAME: return asio::error::host_not_found;
    case EAI_MEMORY: return asio::error::no_memory;
    default: return asio::error::no_recovery;
  }
}

error_code resolve(const std::string& host, Lookups::Addresses& out) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (code != 0) return error_of(code);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (at->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), at->ai_addr, at->ai_addrlen);
    endpoint.resize(at->ai_addrlen);
    out.push_back(endpoint.address());
  }
  return {};
}

}  // namespace

struct Lookups::State {
  std::mutex mutex;
  asio::io_context* context = nullptr;  // null: nobody waits any more
  std::map<std::string, std::vector<Done>> waiting;

  void answer(const std::string& host, const error_code& error, Addresses addresses) {
    const std::lock_guard lock(mutex);
    const auto it = waiting.find(host);
    if (context == nullptr || it == waiting.end()) return;
    auto all = std::move(it->second);
    waiting.erase(it);
    asio::post(*context, [error, addresses = std::move(addresses), all = std::move(all)] {
      for (const Done& done : all) done(error, addresses);
    });
  }
};

Lookups::Lookups(asio::io_context& context) : state_(std::make_shared<State>()) { state_->context = &context; }

void Lookups::close() {
  const std::lock_guard lock(state_->mutex);
  state_->context = nullptr;
  state_->waiting.clear();
}

void Lookups::find(const std::string& host, Done done) {
  {
    const std::lock_guard lock(state_->mutex);
    const auto [it, is_new] = state_->waiting.try_emplace(host);
    it->second.push_back(std::move(done));
    if (!is_new) return;
    if (state_->waiting.size() <= kNamesMax) {
      try {
        std::thread([state = state_, host] {
          Addresses addresses;
          error_code error = asio::error::no_memory;
          try {
            error = resolve(host, addresses);
          } catch (const std::exception&) {
          }
          try {
            state->answer(host, error, std::move(addresses));
          } catch (const std::exception&) {  // who waits has a time limit
          }
        }).detach();
        return;
      } catch (const std::exception&) {  // the system gives no thread
      }
    }
  }
  state_->answer(host, asio::error::host_not_found_try_again, {});
}

}  // namespace llorch::net
