//go:build race

package guard

// raceDetector says that the tests take much more memory than what they test.
const raceDetector = true
