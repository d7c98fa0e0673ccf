package hang

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
)

// Doing is a one-line description of what a task is doing.
type Doing struct {
	Task cluster.Task
	Host string
	What string
}

// varying matches process IDs and durations in a description. These differ
// even between tasks that do the same.
var varying = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(` \(pid [0-9]+\)| for ([0-9]+(\.[0-9]+)?(h|ms|m|s|µs))+`)
})

// Groups returns one line for each group of tasks that do the same, such as
// "ranks 0-2,4: all_reduce (train.py:41)". The lines are sorted by the first
// task of each group, workers before servers. The line of a single task also
// names its host.
func Groups(all []Doing) (lines []string) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Doing) int {
		return cmp.Or(strings.Compare(string(b.Task.Role), string(a.Task.Role)), a.Task.Index-b.Task.Index)
	})
	groups := map[string][]Doing{}
	var order []string
	for _, d := range all {
		key := string(d.Task.Role) + " " + varying().ReplaceAllString(d.What, "")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], d)
	}
	for _, key := range order {
		group := groups[key]
		if first := group[0]; len(group) == 1 {
			lines = append(lines, fmt.Sprintf("%s %d on %s: %s", noun(first.Task.Role, ""), first.Task.Index, first.Host, first.What))
			continue
		}
		role, what, _ := strings.Cut(key, " ")
		lines = append(lines, fmt.Sprintf("%s %s: %s", noun(cluster.Role(role), "s"), indices(group), what))
	}
	return lines
}

// noun returns the word for a task of role r in messages: "rank" or "server",
// followed by plural, which is "s" or "".
func noun(r cluster.Role, plural string) string {
	if r == cluster.Worker {
		return "rank" + plural
	}
	return "server" + plural
}

// indices formats the sorted indices of tasks as ranges, such as 0-2,4.
func indices(all []Doing) string {
	var words []string
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1].Task.Index == all[last].Task.Index+1 {
			last++
		}
		word := fmt.Sprint(all[i].Task.Index)
		if last > i {
			word = fmt.Sprintf("%s-%d", word, all[last].Task.Index)
		}
		words, i = append(words, word), last+1
	}
	return strings.Join(words, ",")
}
