//go:build long

package cpu

import "testing"

func TestFunctions32Everywhere(t *testing.T) { testFunctions32(t, 400, 1<<21) }
