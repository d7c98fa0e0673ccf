//go:build long

package client

import (
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

var everyRule = []optimizer.Rule{optimizer.SGD, optimizer.Momentum, optimizer.Adagrad, optimizer.Adam}

func TestAllCombinationsMatchReference(t *testing.T) {
	for _, workers := range cuts {
		for _, at := range placesToTrain {
			testBits(t, workers, at, 5)
		}
	}
}

func TestAllMovesKeepBits(t *testing.T) {
	for _, rule := range everyRule {
		for workers := 1; workers <= 4; workers++ {
			for _, at := range placesToMove {
				testMoves(t, rule, workers, at, 6)
			}
		}
	}
}

func TestAllRestoredTrainingsHaveSameBits(t *testing.T) {
	for _, rule := range everyRule {
		for i := range placesToRestore {
			for k := range placesToRestore {
				testRestored(t, rule, i, k)
			}
		}
	}
}

func TestManyRandomRestoredTrainingsHaveSameBits(t *testing.T) { testRandomRestores(t, 15, 34) }

func TestManyRandomJobsMatchReference(t *testing.T) { testRandomJobs(t, 25, 24) }

func TestAllPrefetchedRowsMatchReference(t *testing.T) {
	for _, c := range jobsThatWant {
		for _, ahead := range []string{"never", "always", "mixed"} {
			testWanting(t, c, ahead)
		}
	}
}

func TestTrainingContinuesAfterManyRandomLosses(t *testing.T) { testLosses(t, 24) }
