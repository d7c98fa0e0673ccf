//go:build long

package jobstate

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestSimulatedHosts prints the table of docs/scale.md.
func TestSimulatedHosts(t *testing.T) {
	fmt.Println("| hosts x workers | part of the job | events | messages a host | bytes a host | sent in all | dials a host | time an event | memory an event |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	last := map[string]cost{}
	for _, size := range [][2]int{{256, 1}, {1000, 1}, {1000, 8}, {10000, 1}, {10000, 8}} {
		for _, c := range simulate(t, size[0], size[1]) {
			fmt.Printf("| %d x %d | %s | %d | %.1f | %s | %s | %.1f | %s | %s |\n", size[0], size[1], c.phase, c.events, c.perHost(c.sent),
				amount(c.bytes/c.hosts), amount(c.bytes), c.perHost(c.dials), (c.spent / time.Duration(c.events)).Round(100*time.Nanosecond), amount(c.taken/c.events))
			if few, known := last[c.phase]; known && c.perHost(c.sent) > few.perHost(few.sent)+0.5 {
				t.Errorf("%d hosts, %s: %.1f messages a host, %.1f of %d hosts", c.hosts, c.phase, c.perHost(c.sent), few.perHost(few.sent), few.hosts)
			}
			last[c.phase] = c
			if c.phase == "end" && c.largest > 32<<10 {
				t.Errorf("%d hosts: the verdict takes %d bytes", c.hosts, c.largest)
			}
		}
	}
}

// TestSizesOfMessages prints the second table of docs/scale.md: the messages that grow with
// the hosts.
func TestSizesOfMessages(t *testing.T) {
	fmt.Println("| hosts x workers | addresses, to each host | as plain JSON | plan, to the driver of a detached job | hosts, to plx scale and to who lists a job after a restart |")
	fmt.Println("|---|---|---|---|---|")
	for _, size := range [][2]int{{256, 1}, {256, 8}, {1000, 1}, {1000, 8}, {10000, 1}, {10000, 8}} {
		var tasks, foreign cluster.Spec
		drive := protocol.Drive{Plan: protocol.Plan{Job: "simulated"}}
		for h := range size[0] {
			host := simulatedHost(h, size[1])
			for rank, task := range host.Tasks {
				tasks.Set(task.Task, address(h, 1+2*rank))
				foreign.Set(task.Task, address(h, 2+2*rank))
			}
			drive.Plan.Hosts = append(drive.Plan.Hosts, host)
			drive.Peers = append(drive.Peers, protocol.Peer{Index: h, Host: host.Host, Addr: address(h, 0)})
		}
		bytes := func(m any) int {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return len(text)
		}
		fmt.Printf("| %d x %d | %s | %s | %s | %s |\n", size[0], size[1], amount(bytes(protocol.NewAddresses(tasks, foreign))), amount(bytes([]cluster.Spec{tasks, foreign})),
			amount(bytes(drive)), amount(bytes(protocol.Scaled{Hosts: drive.Plan.Hosts})))
	}
}

// amount is a number of bytes with a unit.
func amount(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
