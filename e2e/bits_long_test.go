//go:build long

package e2e

import "testing"

func TestSameBitsOfEveryLayout(t *testing.T) {
	sameBits(t, func(_, _, _ string) bool { return true })
}
