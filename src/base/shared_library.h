#pragma once
// A library opened at run time, closed with its owner. Its functions are no symbols of ours: who lacks it runs without.
#include <dlfcn.h>

#include <string>
#include <utility>

namespace llorch::base {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // Not is_open(): it cannot be opened.
  explicit SharedLibrary(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  SharedLibrary(SharedLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }

  bool is_open() const { return handle_ != nullptr; }
  // False, and `function` is null: there is no such symbol. REQUIRES: is_open(), and F is the symbol's type.
  template <class F>
  bool load(F*& function, const char* symbol) const {
    function = reinterpret_cast<F*>(::dlsym(handle_, symbol));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace llorch::base
