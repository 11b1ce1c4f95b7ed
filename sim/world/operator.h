#pragma once
// An operator who drains, reloads and purges pools at random while faults happen, and afterwards takes back what would keep
// the jobs waiting for ever: drains, and under the policy `manual` the models that are in the way. Also makes, touches, looks
// at and ends sessions, as a client does.
#include <cstdint>
#include <string>

#include "net/http/principal.h"
#include "sim/kernel/network.h"

namespace llorch::sim {

struct World;

class Operator {
 public:
  explicit Operator(World& world);

  void begin();
  void heal();
  void drain(const std::string& pool, std::int64_t deadline_ms);

 private:
  void repeat(std::int64_t mean_ms, void (Operator::*act)());
  std::string any_pool();
  static net::http::Principal principal();
  void order(std::string method, std::string path, std::string body = {});
  void drain_any();
  void undrain();
  void reload();
  void purge(const std::string& pool, bool force);
  void purge_any();
  void deregister();
  void tend_session();
  void take_back(const std::string& pool);
  void make_room();

  World& world_;
  Process process_;
};

}  // namespace llorch::sim
