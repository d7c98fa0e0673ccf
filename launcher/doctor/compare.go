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

// compare finds what shows only between hosts.
func compare(all []HostFacts) []Finding {
	return slices.Concat(comparePlatforms(all), compareMTU(all), comparePython(all))
}

// comparePlatforms finds hosts with other processors than most.
func comparePlatforms(all []HostFacts) []Finding {
	by := map[string][]string{}
	for _, h := range all {
		if h.Facts != nil && h.Facts.OS == "Linux" {
			by[h.Facts.Arch] = append(by[h.Facts.Arch], h.Host)
		}
	}
	return split(by, Platform, "an executable file runs on one kind only: launch a Go package folder, or a command that all hosts have",
		func(values string) string { return "the processors are not all of one kind: " + values })
}

// compareMTU finds hosts whose packets for data are larger or smaller than those of most.
func compareMTU(all []HostFacts) []Finding {
	by := map[string][]string{}
	for _, h := range all {
		if h.Agent == nil {
			continue
		}
		for _, link := range h.Agent.Links {
			if link.Name == h.Agent.Interface && !link.Loopback && link.MTU > 0 {
				by[fmt.Sprint(link.MTU)] = append(by[fmt.Sprint(link.MTU)], h.Host)
			}
		}
	}
	return split(by, Network, "give the interfaces of all hosts one MTU: ip link set dev NAME mtu N",
		func(values string) string { return "the interfaces for data differ in their MTU: " + values })
}

// split makes one warning if hosts differ. It names the hosts of all values but the most
// frequent one, and lists the values in its text.
func split(by map[string][]string, check Check, remedy string, text func(values string) string) []Finding {
	if len(by) < 2 {
		return nil
	}
	values := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(len(by[b])-len(by[a]), strings.Compare(a, b)) })
	var words, odd []string
	for i, v := range values {
		words = append(words, fmt.Sprintf("%s (%s)", v, console.Fold(by[v])))
		if i > 0 {
			odd = append(odd, by[v]...)
		}
	}
	return []Finding{{Level: Warning, Check: check, Hosts: odd, Text: bounded(text(strings.Join(words, ", "))), Remedy: remedy}}
}

// mendClock replaces the findings of all hosts' clocks by one if this machine's clock is
// the wrong one: at least two hosts agree with each other, and none with this machine.
func mendClock(all []HostFacts, findings []Finding) []Finding {
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
	return append(findings, Finding{Level: Warning, Check: Clock, Hosts: []string{here},
		Text: fmt.Sprintf("its clock is %s %s that of all hosts", span(math.Abs(low)), way), Remedy: "synchronise it, for example with chrony"})
}
