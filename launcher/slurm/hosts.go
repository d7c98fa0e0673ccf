package slurm

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/plx-run/plx/hostfile"
)

// node is a node of a Slurm allocation.
type node struct {
	name    string
	cores   int    // number of CPU cores that the job has on the node
	tasks   int    // number of tasks that the user requested for the node; 0: no number given
	addr    string // name or IP address through which Slurm reaches the node; empty: unknown
	managed bool   // true if Slurm allocates the node's GPUs to jobs
	gpus    string // the node's CUDA_VISIBLE_DEVICES, or AMD's ROCR_VISIBLE_DEVICES, in a Slurm step; empty: no GPU
}

// Known returns the nodes of the allocation, without connecting to a node.
// Their GPUs are therefore unknown.
func (j *Job) Known(ctx context.Context) ([]hostfile.Host, error) {
	nodes, err := j.find(ctx)
	if err != nil {
		return nil, j.wrapError(err)
	}
	return j.lines(nodes)
}

// Hosts returns the nodes of the allocation as lines of a resource file, each
// with the node's address and the GPUs that the job has there. It runs a Slurm
// step on all nodes, which also proves that the allocation works.
func (j *Job) Hosts(ctx context.Context) ([]hostfile.Host, error) {
	nodes, err := j.find(ctx)
	if err == nil {
		err = j.probeNodes(ctx, nodes)
	}
	if err != nil {
		return nil, j.wrapError(err)
	}
	return j.lines(nodes)
}

// find runs scontrol to list the nodes of the allocation.
func (j *Job) find(ctx context.Context) ([]*node, error) {
	out, err := ask(ctx, "scontrol", "show", "hostnames", j.nodes)
	if err != nil {
		return nil, err
	}
	names := strings.Fields(out)
	if len(names) == 0 || len(names) > maxNodes {
		return nil, fmt.Errorf("SLURM_JOB_NODELIST=%q names %d nodes", j.nodes, len(names))
	}
	cores, err := counts(j.cores, len(names))
	if err != nil {
		return nil, fmt.Errorf("SLURM_JOB_CPUS_PER_NODE: %w", err)
	}
	tasks := make([]int, len(names))
	if j.tasks != "" {
		if tasks, err = counts(j.tasks, len(names)); err != nil {
			return nil, fmt.Errorf("SLURM_TASKS_PER_NODE: %w", err)
		}
	}
	var nodes []*node
	for i, name := range names {
		nodes = append(nodes, &node{name: name, cores: cores[i], tasks: tasks[i]})
	}
	out, err = ask(ctx, "scontrol", "--oneliner", "show", "node", j.nodes)
	if err != nil {
		return nil, err
	}
	return nodes, describe(nodes, out)
}

// describe sets the address of each node, and whether Slurm manages its GPUs.
// text is the output of "scontrol show node".
func describe(nodes []*node, text string) error {
	known := map[string]map[string]string{}
	for line := range strings.Lines(text) {
		all := fields(line)
		known[all["NodeName"]] = all
	}
	for _, n := range nodes {
		all, ok := known[n.name]
		if !ok {
			return fmt.Errorf("scontrol show node does not list node %s", n.name)
		}
		n.addr = all["NodeAddr"]
		n.managed = strings.HasPrefix(all["Gres"], "gpu") || strings.Contains(all["Gres"], ",gpu")
	}
	return nil
}

// mark begins each line that the script of probeNodes prints on a node. It
// distinguishes these lines from output of a Slurm prolog (the site's script
// before each step).
const mark = "plx-node"

// probeNodes runs a Slurm step on all nodes. On each node, the step prints the
// node's GPUs and the address of this machine, on which srun runs.
func (j *Job) probeNodes(ctx context.Context, nodes []*node) error {
	all := fmt.Sprintf("%d", len(nodes))
	script := `echo "` + mark + ` $SLURMD_NODENAME ${SLURM_LAUNCH_NODE_IPADDR:--} ${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:--}} ."`
	out, err := ask(ctx, "srun", append(stepFlags(j.ID), "--nodes="+all, "--ntasks="+all, "--ntasks-per-node=1", "/bin/sh", "-c", script)...)
	if err != nil {
		return err
	}
	reports := map[string][]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 5 && words[0] == mark {
			reports[words[1]] = words
		}
	}
	here := "" // address of this machine, which may itself be a node of the allocation
	for _, n := range nodes {
		words, ok := reports[n.name]
		if !ok {
			return fmt.Errorf("srun: a step on all nodes printed nothing on node %s", n.name)
		}
		if gpus := words[3]; gpus != "-" && gpus != "NoDevFiles" {
			n.gpus = gpus
		}
		if usable(words[2]) {
			here = words[2]
		}
	}
	for _, n := range nodes {
		if n.addr = address(ctx, n.addr); n.addr == "" && isHere(n.name) {
			n.addr = here
		}
	}
	return nil
}

// HasEnded asks Slurm whether this run of the job has ended, so that srun can no
// longer reach its nodes.
func (r Run) HasEnded(ctx context.Context) (bool, error) {
	s, err := GetState(ctx, r.ID)
	return err == nil && (s.Name != "RUNNING" && s.Name != "SUSPENDED" || s.Restarts != r.Restarts), err
}

// HasCleanedUp asks Slurm whether this run of the job has ended and Slurm has also
// killed the processes that it left on the nodes.
func (r Run) HasCleanedUp(ctx context.Context) (bool, error) {
	s, err := GetState(ctx, r.ID)
	return err == nil && (s.Over() || s.Queued() || s.Restarts != r.Restarts) && !s.Completing(), err
}

// fields parses the NAME=VALUE words in a line of scontrol's output. If a name
// occurs twice, its first value counts.
func fields(line string) map[string]string {
	all := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && all[name] == "" {
			all[name] = value
		}
	}
	return all
}

// address returns an IP address through which other hosts can reach the node
// addr, or "" if there is none. The node's name is not enough on the node
// itself, where it may resolve only to the loopback interface.
func address(ctx context.Context, addr string) string {
	if usable(addr) {
		return addr
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, addr)
	if err != nil {
		return "" // a later step reports that the host has no usable address
	}
	for _, a := range found {
		if usable(a) {
			return a
		}
	}
	return ""
}

func usable(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() && ip.Zone() == ""
}

// isHere reports whether this process runs on the node called name.
func isHere(name string) bool {
	own, err := os.Hostname()
	label, _, _ := strings.Cut(own, ".")
	return err == nil && (own == name || label == name)
}

// lines converts the nodes to parsed lines of a resource file.
func (j *Job) lines(nodes []*node) ([]hostfile.Host, error) {
	var texts []string
	for _, n := range nodes {
		texts = append(texts, n.line())
	}
	lines, err := hostfile.ParseLines(texts)
	if err != nil {
		return nil, j.wrapError(err)
	}
	for i := range lines {
		lines[i].Pos = hostfile.Position{File: "job " + j.ID + " of Slurm", Line: i + 1}
		if usable(nodes[i].addr) {
			lines[i].DataAddr = nodes[i].addr
		}
	}
	return lines, nil
}

// line returns the node as a line of a resource file. If Slurm does not manage
// the node's GPUs, the job has all of them, or one for each task that the user
// requested.
func (n *node) line() string {
	switch {
	case n.gpus != "":
		return n.name + ": " + n.gpus
	case n.managed:
		return fmt.Sprintf("%s: cpu*%d", n.name, cmp.Or(n.tasks, 1))
	case n.tasks > 0:
		return fmt.Sprintf("%s slots=%d", n.name, n.tasks)
	}
	return n.name
}
