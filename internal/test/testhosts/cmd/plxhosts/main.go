// Plxhosts starts test hosts for manual tests of plx:
//
//	sudo go run ./internal/test/testhosts/cmd/plxhosts -n 4 -gpus 4,2
//
// It prints the environment variables to export. One of them, PLX_HOSTS, is
// the path of a resource file with the hosts. It stops the hosts on Ctrl-C or
// at the end of its standard input.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/test/testhosts"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plxhosts:", err)
		os.Exit(1)
	}
}

func run() error {
	var o testhosts.Options
	flag.IntVar(&o.Hosts, "n", 4, "number of hosts")
	gpus := flag.String("gpus", "", "fake GPUs of each host, as 4,2,0")
	flag.BoolVar(&o.SharedHome, "shared-home", false, "one home for all hosts")
	flag.BoolVar(&o.NoisyRC, "noisy-rc", false, "a .bashrc that prints")
	flag.BoolVar(&o.Second, "second", false, "a second interface, eth1, on a network of its own")
	flag.StringVar(&o.Rate, "rate", "", "limit of each host's link, as 100mbit")
	flag.Parse()
	var err error
	if o.GPUs, err = parseCounts(*gpus); err != nil {
		return err
	}
	// Catch Ctrl-C before the hosts start, so that Ctrl-C always removes them.
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM)
	cluster, err := testhosts.Open(o, testhosts.ReportTo(os.Stderr))
	if err != nil {
		return err
	}
	show(cluster)
	select {
	case <-interrupt:
	case <-endOfInput():
	}
	return cluster.Close()
}

func parseCounts(list string) ([]int, error) {
	var counts []int
	for field := range strings.SplitSeq(list, ",") {
		if field == "" {
			continue
		}
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("-gpus: %q is no number of GPUs", field)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

func show(c *testhosts.Cluster) {
	for _, h := range c.Hosts {
		fmt.Fprintf(os.Stderr, "%s\t%s\thome %s\n", h.Name, h.Addr, h.HomeDir)
	}
	fmt.Fprintln(os.Stderr, "Ctrl-C ends them. In another terminal:")
	fmt.Printf("export HOME=%s\nexport PLX_HOSTS=%s\n", c.Home, c.ResourceFile())
}

// endOfInput returns a channel that is closed at the end of standard input.
func endOfInput() <-chan struct{} {
	end := make(chan struct{})
	go func() { // The goroutine ends with the process at the latest.
		defer close(end)
		_, _ = io.Copy(io.Discard, os.Stdin) // a read error is treated as the end of the input
	}()
	return end
}
