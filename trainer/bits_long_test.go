//go:build long

package trainer

import (
	"syscall"
	"testing"
)

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

func TestResumeEverywhere(t *testing.T) { testResume(t, true) }

func TestSearchKeepsTheBitsEverywhere(t *testing.T) {
	all := []string{"ps", "hybrid", "allreduce", "auto"}
	testSearch(t, map[string][]string{"adam": all, "adagrad": all})
}

func TestOthersContinueWithoutAnyLostProcess(t *testing.T) {
	all := []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM}
	testLostProcess(t, map[string][]syscall.Signal{"async": all, "ssp:2": all, "backup:1": all})
}
