package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/console"
)

// compare returns findings for properties in which hosts differ, such as the
// MTU. Each finding is a warning that lists all values, and names the hosts
// whose value differs from that of most hosts.
func compare(all []HostFacts) (found []Finding) {
	const onePython = "install the same on all hosts, or send an environment with plx launch --venv"
	for _, c := range []struct {
		check        Check
		text, remedy string
		value        func(HostFacts) string // returns the host's value of the property; "" if it is unknown
	}{
		{Platform, "the processors are not all of one kind", "an executable file runs on one kind only: launch a Go package folder, or a command that all hosts have", processor},
		{Network, "the interfaces for data differ in their MTU", "give the interfaces of all hosts one MTU: ip link set dev NAME mtu N", mtu},
		{Python, "python3 is not the same everywhere", onePython, pythonVersion},
		{Python, "torch is not the same everywhere", onePython, torchVersion},
	} {
		by := map[string][]string{}
		for _, h := range all {
			if v := c.value(h); v != "" {
				by[v] = append(by[v], h.Host)
			}
		}
		if len(by) < 2 {
			continue
		}
		values := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(len(by[b])-len(by[a]), strings.Compare(a, b)) })
		var words, odd []string
		for i, v := range values {
			words = append(words, fmt.Sprintf("%s (%s)", v, console.Fold(by[v])))
			if i > 0 {
				odd = append(odd, by[v]...)
			}
		}
		found = append(found, Finding{Level: Warning, Check: c.check, Hosts: odd, Text: truncated(c.text + ": " + strings.Join(words, ", ")), Remedy: c.remedy})
	}
	return found
}

func processor(h HostFacts) string {
	if h.Facts == nil || h.Facts.OS != "Linux" {
		return ""
	}
	return h.Facts.Arch
}

// mtu returns the MTU of the network interface that a host's tasks would use,
// or "" if it is unknown.
func mtu(h HostFacts) string {
	if h.Agent != nil {
		for _, link := range h.Agent.Links {
			if link.Name == h.Agent.Interface && !link.Loopback && link.MTU > 0 {
				return fmt.Sprint(link.MTU)
			}
		}
	}
	return ""
}

// pythonVersion returns major and minor version of python3, such as "3.12", or
// "" if they are unknown.
func pythonVersion(h HostFacts) string {
	if h.Python == nil {
		return ""
	}
	parts := strings.SplitN(h.Python.Python, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

func torchVersion(h HostFacts) string {
	if h.Python == nil {
		return ""
	}
	return h.Python.Torch
}

// mergeClockFindings replaces the findings (problems) about the hosts' clocks
// by a single one if the clock of this machine is wrong. It concludes this if
// at least two hosts agree with each other, and no host agrees with this
// machine.
func mergeClockFindings(all []HostFacts, findings []Finding) []Finding {
	var skews []float64
	for _, h := range all {
		if h.Facts != nil && h.Facts.SkewError >= 0 {
			skews = append(skews, h.Facts.Skew)
		}
	}
	if len(skews) < 2 {
		return findings
	}
	low, high := slices.Min(skews), slices.Max(skews)
	if high-low > goodSkew || min(math.Abs(low), math.Abs(high)) <= goodSkew || low*high < 0 {
		return findings
	}
	findings = slices.DeleteFunc(findings, func(f Finding) bool { return f.Check == Clock })
	way := "behind"
	if low < 0 {
		way = "ahead of"
	}
	return append(findings, Finding{Level: Warning, Check: Clock, Hosts: []string{thisMachine},
		Text: fmt.Sprintf("its clock is %s %s that of all hosts", formatSeconds(math.Abs(low)), way), Remedy: "synchronise it, for example with chrony"})
}
