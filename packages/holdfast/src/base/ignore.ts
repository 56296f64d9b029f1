/** For a failure that costs nothing: `work.catch(ignore)`, with a comment where it is not plain why. */
export const ignore = (): void => {}
