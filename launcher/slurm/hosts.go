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

// node is one node of an allocation.
type node struct {
	name    string
	cores   int    // of the job
	tasks   int    // that the user asked for; 0: none were named
	addr    string // by which Slurm reaches the node, a name or an IP address
	managed bool   // Slurm hands out the node's GPUs
	gpus    string // value of CUDA_VISIBLE_DEVICES or AMD's ROCR_VISIBLE_DEVICES in a step; empty: no GPU
}

// Known returns the hosts as far as they are known without a connection to one: which GPUs
// they have is not.
func (j *Job) Known(ctx context.Context) ([]hostfile.Host, error) {
	nodes, err := j.find(ctx)
	if err != nil {
		return nil, j.wrong(err)
	}
	return j.lines(nodes)
}

// Hosts returns the nodes of the allocation as lines of a resource file: those of its GPUs
// that the job has, and its address. It starts a step on all nodes, and so shows that the
// allocation can be used.
func (j *Job) Hosts(ctx context.Context) ([]hostfile.Host, error) {
	nodes, err := j.find(ctx)
	if err == nil {
		err = j.look(ctx, nodes)
	}
	if err != nil {
		return nil, j.wrong(err)
	}
	return j.lines(nodes)
}

// find asks Slurm for the nodes.
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

// describe takes from the lines of "scontrol show node" where the nodes are, and whether
// Slurm hands out their GPUs.
func describe(nodes []*node, text string) error {
	known := map[string]map[string]string{}
	for line := range strings.Lines(text) {
		all := fields(line)
		known[all["NodeName"]] = all
	}
	for _, n := range nodes {
		all, ok := known[n.name]
		if !ok {
			return fmt.Errorf("scontrol show node tells nothing of node %s", n.name)
		}
		n.addr = all["NodeAddr"]
		n.managed = strings.HasPrefix(all["Gres"], "gpu") || strings.Contains(all["Gres"], ",gpu")
	}
	return nil
}

// mark begins the lines of the step that looks at the nodes: a site may have a prolog that
// prints.
const mark = "plx-node"

// look runs a step on all nodes, which tells the GPUs of each, and by which address the
// others reach this one.
func (j *Job) look(ctx context.Context, nodes []*node) error {
	all := fmt.Sprintf("%d", len(nodes))
	script := `echo "` + mark + ` $SLURMD_NODENAME ${SLURM_LAUNCH_NODE_IPADDR:--} ${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:--}} ."`
	out, err := ask(ctx, "srun", append(stepFlags(j.ID), "--nodes="+all, "--ntasks="+all, "--ntasks-per-node=1", "/bin/sh", "-c", script)...)
	if err != nil {
		return err
	}
	told := map[string][]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 5 && words[0] == mark {
			told[words[1]] = words
		}
	}
	here := "" // address of this process, which may run on one of the nodes
	for _, n := range nodes {
		words, ok := told[n.name]
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

// Over asks Slurm whether the run has ended. Its nodes cannot be reached by a step then.
func (r Run) Over(ctx context.Context) (bool, error) {
	s, err := Ask(ctx, r.ID)
	return err == nil && (s.Name != "RUNNING" && s.Name != "SUSPENDED" || s.Restarts != r.Restarts), err
}

// Ended is Over, and Slurm has also ended all that the run has left.
func (r Run) Ended(ctx context.Context) (bool, error) {
	s, err := Ask(ctx, r.ID)
	return err == nil && (s.Over() || s.Waits() || s.Restarts != r.Restarts) && !s.Completing(), err
}

// fields are the words NAME=VALUE of a line of scontrol's. Of a name the first counts.
func fields(line string) map[string]string {
	all := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && all[name] == "" {
			all[name] = value
		}
	}
	return all
}

// address resolves the address of a node; "" if other hosts cannot dial it. A node may be
// told that its own name means the loopback interface.
func address(ctx context.Context, addr string) string {
	if usable(addr) {
		return addr
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, addr)
	if err != nil {
		return "" // the data address of a host that has none is an error later, which says what to do
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

// isHere reports whether this process runs on the node.
func isHere(name string) bool {
	own, err := os.Hostname()
	label, _, _ := strings.Cut(own, ".")
	return err == nil && (own == name || label == name)
}

// lines writes the nodes as lines of a resource file, and reads these.
func (j *Job) lines(nodes []*node) ([]hostfile.Host, error) {
	var texts []string
	for _, n := range nodes {
		texts = append(texts, n.line())
	}
	lines, err := hostfile.ParseLines(texts)
	if err != nil {
		return nil, j.wrong(err)
	}
	for i := range lines {
		lines[i].Pos = hostfile.Position{File: "job " + j.ID + " of Slurm", Line: i + 1}
		if usable(nodes[i].addr) {
			lines[i].DataAddr = nodes[i].addr
		}
	}
	return lines, nil
}

// line is the node as a line of a resource file. Of a node whose GPUs Slurm does not hand
// out the job has all, or one for each task that the user asked for.
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
