#include "engine/models/testing/tiny_tensors.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace llorch::engine::models::testing {

TinyTensor TinyTensor::f32(std::vector<std::uint64_t> shape, std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {.type = "F32", .shape = std::move(shape), .bytes = {bytes.begin(), bytes.end()}};
}

TinyTensor TinyTensor::counting(std::vector<std::uint64_t> shape) {
  std::vector<float> values(std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>()));
  std::iota(values.begin(), values.end(), 0.0F);
  return f32(std::move(shape), values);
}

TinyTensor TinyTensor::raw(std::string type, std::vector<std::uint64_t> shape, std::span<const std::uint8_t> values) {
  const auto bytes = std::as_bytes(values);
  return {.type = std::move(type), .shape = std::move(shape), .bytes = {bytes.begin(), bytes.end()}};
}

io::ModelFiles tiny_files(const std::map<std::string, TinyTensor>& tensors, std::vector<std::byte>& storage,
                          const std::string& config) {
  std::string header;
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : tensors) {
    header +=
        fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.empty() ? "{" : ",",
                    name, tensor.type, fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  header += "}";
  const std::uint64_t length = header.size();
  storage.resize(sizeof length + header.size() + data.size());
  std::memcpy(storage.data(), &length, sizeof length);
  std::memcpy(storage.data() + sizeof length, header.data(), header.size());
  std::memcpy(storage.data() + sizeof length + header.size(), data.data(), data.size());
  std::vector<io::SafetensorsFile> files;
  files.push_back(io::SafetensorsFile::parse(storage).value());
  return io::ModelFiles::from_hugging_face(io::HfConfig::parse(config).value(), std::move(files)).value();
}

}  // namespace llorch::engine::models::testing
