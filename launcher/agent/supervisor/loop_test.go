//go:build linux

package supervisor

import (
	"testing"
	"time"
)

func TestDeadlineOnlyMovesForward(t *testing.T) {
	var d deadline
	if d.passed() {
		t.Error("passed, and was not set")
	}
	d.set(time.Hour)
	d.set(2 * time.Hour)
	if at := time.Until(d.at); at > time.Hour || d.passed() {
		t.Errorf("in %s, want an hour", at)
	}
	d.set(0)
	if !d.passed() {
		t.Error("not passed, and was set to now")
	}
	d.set(0)
	if d.passed() {
		t.Error("passed twice")
	}
}
