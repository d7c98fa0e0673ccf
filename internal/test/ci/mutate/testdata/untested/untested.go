// Package untested has no tests.
package untested

// Sum adds.
func Sum(a, b int) int { return a + b }
