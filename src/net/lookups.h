#pragma once
// Addresses of names. Internal to net.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace llorch::net {

// Asks the system's resolver, a thread for each name: it waits for its answer, and a name that nobody answers for would hold up all
// others. Who asks for a name that is being asked for has the same answer.
class Lookups {
 public:
  using Addresses = std::vector<boost::asio::ip::address>;
  using Done = std::function<void(const boost::system::error_code&, const Addresses&)>;

  // REQUIRES: `context` outlives it.
  explicit Lookups(boost::asio::io_context& context);
  Lookups(const Lookups&) = delete;
  Lookups& operator=(const Lookups&) = delete;
  ~Lookups() { close(); }

  // Waits for nobody: what has no answer by then gets none. The context may go away behind it.
  void close();

  // `done` is called on the context. REQUIRES: it may be destroyed on any thread. Thread-safe.
  void find(const std::string& host, Done done);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace llorch::net
