// relay_forward: a bare TCP forwarder to --port, the least that anything between a worker and a client can cost. Prints one
// line with its own port; runs until it is killed.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "bench/serve/io/sockets.h"

namespace {

using namespace llorch::bench;

struct End {
  Fd fd;
  End* peer = nullptr;
  std::string out;
  std::size_t sent = 0;
  bool open = true;
};

// What one end sent goes to the other, at once.
void forward(End& from) {
  End& to = *from.peer;
  if (!from.open) return;
  bool drained = false;
  while (!drained) {
    std::string_view bytes;
    if (!read_some(from.fd, bytes, drained)) from.open = false;
    if (!from.open) break;
    to.out.append(bytes);
  }
  if (to.open && !send_some(to.fd, to.out, to.sent)) to.open = false;
  if (from.open && to.open) return;
  from.open = to.open = false;
  from.fd = Fd();
  to.fd = Fd();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"relay_forward: a bare TCP forwarder, for the relay bench"};
  std::uint16_t to = 0;
  app.add_option("--port", to, "Where connections lead, on loopback")->required();
  CLI11_PARSE(app, argc, argv);
  std::uint16_t port = 0;
  const Fd listener = listen_on_loopback(port);
  Poller poller;
  poller.add(listener, nullptr);
  fmt::print("{{\"event\":\"ready\",\"port\":{}}}\n", port);
  std::fflush(stdout);
  std::vector<std::unique_ptr<End>> ends;
  while (true) {
    for (const epoll_event& event : poller.wait(now_ns() + 1'000'000'000)) {
      if (auto* end = static_cast<End*>(event.data.ptr)) {
        if (end->open && !send_some(end->fd, end->out, end->sent)) end->open = false;
        forward(*end);
        continue;
      }
      for (Fd client = accept_from(listener); client.get() >= 0; client = accept_from(listener)) {
        End& near = *ends.emplace_back(std::make_unique<End>());
        End& far = *ends.emplace_back(std::make_unique<End>());
        near = {.fd = std::move(client), .peer = &far, .out = {}};
        far = {.fd = connect_to_loopback(to), .peer = &near, .out = {}};
        poller.add(near.fd, &near);
        poller.add(far.fd, &far);
      }
    }
  }
}
