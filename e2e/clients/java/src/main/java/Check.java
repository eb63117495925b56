import java.util.concurrent.Callable;

/**
 * The Java clients against a workspace.
 *
 * <p>KUBECONFIG leads to a workspace of its own, where the widgets of two versions are bound. The first argument is
 * the definition of lamps, the second the client: "fabric8" or "official".
 */
public final class Check {
  /** A part of a check; its exception fails the run. */
  interface Step {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[1].equals("official")) {
      new Official().run();
    } else {
      new Fabric8().run(arguments[0]);
    }
    // Threads of the clients would keep the program running.
    System.exit(0);
  }

  static void step(String name, Step step) throws Exception {
    step.run();
    System.out.println(name + " passed");
  }

  static void check(boolean holds, Object about) {
    if (!holds) {
      throw new AssertionError(String.valueOf(about));
    }
  }

  static void until(String what, Callable<Boolean> holds) throws Exception {
    for (long deadline = System.nanoTime() + 60_000_000_000L; !holds.call(); Thread.sleep(20)) {
      check(System.nanoTime() < deadline, "waited in vain until " + what);
    }
  }
}
