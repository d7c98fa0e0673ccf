//go:build linux

package supervisor

import (
	"bytes"
	"errors"
	"log"
	"net"
	"strings"
	"testing"
)

// Thousands of refused connections produce only a few log lines. The last line
// has the total number.
func TestRefusalsAreCounted(t *testing.T) {
	var out bytes.Buffer
	var r refusals
	for range 1 << 12 {
		r.add(log.New(&out, "", 0), &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 5}, errors.New("no proof"))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != firstRefusals+8 || lines[0] != "connection from 10.0.0.9:5 refused: no proof" ||
		lines[len(lines)-1] != "4096 connections were refused until now, the last from 10.0.0.9:5: no proof" {
		t.Errorf("%d lines, the first %q, the last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
