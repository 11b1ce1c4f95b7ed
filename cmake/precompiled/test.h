// common.h, and what every test includes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common.h"
