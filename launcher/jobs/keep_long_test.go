//go:build long

package jobs

import (
	"fmt"
	"testing"
)

func TestPruneRemovesNothingUnfetchedLong(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomSteps(t, seed+3, 30) })
	}
}
