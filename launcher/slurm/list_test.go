package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		text  string
		nodes int
		want  []int
	}{
		{"4", 1, []int{4}},
		{"4(x2),2", 3, []int{4, 4, 2}},
		{"1,72(x3),1", 5, []int{1, 72, 72, 72, 1}},
		{"0", 1, []int{0}},
		{"4", 2, nil},
		{"4(x2)", 1, nil},
		{"4(x9999999)", 2, nil},
		{"4(x2),", 2, nil},
		{"4(x2", 2, nil},
		{"4(x0),4", 1, nil},
		{"4x2", 2, nil},
		{"-1", 1, nil},
		{"+1", 1, nil},
		{" 1", 1, nil},
		{"99999999", 1, nil},
		{"4(x1)(x1)", 1, nil},
		{"", 1, nil},
	} {
		got, err := counts(c.text, c.nodes)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q of %d nodes: %v, %v", c.text, c.nodes, got, err)
		}
	}
}

func FuzzCounts(f *testing.F) {
	for _, text := range []string{"4(x2),2", "1", "", "(x", "3(x3)", "1,1,1"} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, nodes int) {
		nodes &= 1023
		got, err := counts(text, nodes)
		if err != nil {
			if got != nil {
				t.Errorf("%q: both %v and an error", text, got)
			}
			return
		}
		if len(got) != nodes {
			t.Fatalf("%q of %d nodes: %v", text, nodes, got)
		}
		abbreviated := abbreviate(got)
		again, err := counts(abbreviated, nodes)
		if err != nil || !slices.Equal(again, got) {
			t.Errorf("%q is %v, and %q is %v, %v", text, got, abbreviated, again, err)
		}
	})
}

// abbreviate writes numbers as Slurm does.
func abbreviate(numbers []int) string {
	var items []string
	for len(numbers) > 0 {
		same := 1
		for same < len(numbers) && numbers[same] == numbers[0] {
			same++
		}
		item := strconv.Itoa(numbers[0])
		if same > 1 {
			item += fmt.Sprintf("(x%d)", same)
		}
		items, numbers = append(items, item), numbers[same:]
	}
	return strings.Join(items, ",")
}
