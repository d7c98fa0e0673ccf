//go:build linux

package supervisor

import (
	"testing"
	"time"
)

func TestAlarmOnlyMovesForward(t *testing.T) {
	rang := make(chan string, 2)
	var a alarm
	a.set(time.Hour, func() { rang <- "first" })
	a.set(2*time.Hour, func() { rang <- "later" })
	a.set(time.Millisecond, func() { rang <- "sooner" })
	if got := <-rang; got != "sooner" {
		t.Errorf("rang %s", got)
	}
	a.stop()
}
