//go:build long

package cpu

import "testing"

func TestFloat32FunctionsOnManyNumbers(t *testing.T) { testFunctions32(t, 400, 1<<21) }
