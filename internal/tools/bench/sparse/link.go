package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// netRate returns how many bytes per second TCP can carry over a link with the
// given rate in bits per second. A full Ethernet frame has 1514 bytes as the
// kernel's limiter counts them, of which 1448 are TCP data. The headers take
// 14 bytes for Ethernet, 20 for IP and 32 for TCP with timestamps.
func netRate(bits float64) float64 { return bits / 8 * 1448 / 1514 }

// linkTool is a Python program that sends or receives data on a host.
//
//go:embed link.py
var linkTool string

// link measures the throughput of TCP between two hosts, first in one
// direction and then in both directions at once.
func (b *bench) link(ctx context.Context, rate string) error {
	first, second := b.cluster.Hosts[0], b.cluster.Hosts[1]
	one, err := transfer(ctx, first, second, b.raw)
	if err != nil {
		return err
	}
	before, err := readCPU()
	if err != nil {
		return err
	}
	failed, back := make(chan error), 0.0
	go func() {
		var err error
		back, err = transfer(ctx, second, first, b.raw)
		failed <- err
	}()
	there, err := transfer(ctx, first, second, b.raw)
	after, unread := readCPU()
	if err := errors.Join(<-failed, err, unread); err != nil {
		return err
	}
	r := &benchfmt.Result{Config: b.facts, Name: []byte("Link/rate=" + rate), Iters: 1, Values: []benchfmt.Value{{Value: one, Unit: "one-B/s"},
		{Value: there, Unit: "there-B/s"}, {Value: back, Unit: "back-B/s"}, {Value: after.busyCores(before), Unit: "link-cores"}}}
	fmt.Fprintf(b.stderr, "%s: %v\n", r.Name, r.Values)
	b.samples = append(b.samples, r)
	return nil
}

// transfer sends data from one host to another for some seconds and returns
// the bytes per second.
func transfer(ctx context.Context, from, to *testhosts.Host, seconds float64) (float64, error) {
	const port = "47101"
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second))+30*time.Second)
	defer cancel()
	receiver := to.Command(ctx, "python3", "-c", linkTool, "receive", port)
	var out, complaint bytes.Buffer
	receiver.Stdout, receiver.Stderr = &out, &complaint
	if err := receiver.Start(); err != nil {
		return 0, err
	}
	said, err := from.Command(ctx, "python3", "-c", linkTool, "send", to.Addr, port, fmt.Sprint(seconds)).CombinedOutput()
	if err != nil {
		cancel() // stop the receiver, because no sender will connect to it
		err = fmt.Errorf("send: %w: %s", err, said)
	}
	if ended := receiver.Wait(); ended != nil {
		return 0, errors.Join(err, fmt.Errorf("receive: %w: %s", ended, &complaint))
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(out.Bytes())), 64)
}
