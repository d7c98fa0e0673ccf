//go:build !cgocuda

package driver

const binding = "*cuda.gpu"
