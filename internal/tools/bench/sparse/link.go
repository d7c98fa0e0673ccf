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

// netRate is what TCP can carry over a link of a rate, in bytes per second. Of a full
// Ethernet frame of 1514 bytes, as the kernel's limiter counts them, TCP carries 1448:
// 14 are Ethernet's, 20 IP's, 32 TCP's with its timestamps.
func netRate(bits float64) float64 { return bits / 8 * 1448 / 1514 }

// linkTool sends and receives on the hosts.
//
//go:embed link.py
var linkTool string

// link measures what TCP carries between two hosts, with nothing else on the links.
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

// transfer sends from one host to another and returns bytes per second.
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
		cancel() // nobody will come
		err = fmt.Errorf("send: %w: %s", err, said)
	}
	if ended := receiver.Wait(); ended != nil {
		return 0, errors.Join(err, fmt.Errorf("receive: %w: %s", ended, &complaint))
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(out.Bytes())), 64)
}
