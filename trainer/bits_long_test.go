//go:build long

package trainer

import "testing"

func TestSameBitsEverywhere(t *testing.T) {
	testSameBits(t, func(_, _, _ int) bool { return true })
}

func TestSameBitsOnAllUnevenHosts(t *testing.T) {
	testUnevenHosts(t, func(_, _, _ int) bool { return true })
}

func TestPrefetchChangesNoBitAnywhere(t *testing.T) {
	testPrefetch(t, func(_, _, _ int) bool { return true })
}

func TestEveryModeLearnsEveryModel(t *testing.T) {
	testLearning(t, func(_, _ int) bool { return true })
}
