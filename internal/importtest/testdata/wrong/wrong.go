// Package wrong breaks the measures of structure, so that their test can see
// that it is found.
package wrong

type inner struct {
	count int
	names map[string]bool
}

// Outer has four methods: two of its own and two of inner's.
type Outer struct {
	inner
	OnEnd func()
}

func (i *inner) add()    { i.count++ }
func (i *inner) forget() { i.names = nil }

// Reach assigns what belongs to inner, and constructs another, which it may.
func (o *Outer) Reach(each func(string)) {
	fresh := inner{}
	fresh.count = 1
	o.inner.count = fresh.count
	o.names["x"] = true
}

func touch(o *Outer) { o.add(); o.forget() }

type wide interface {
	One()
	Two()
}
